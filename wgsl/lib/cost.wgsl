{#- Counters of `webnorm show --cost`: nothing in an ordinary rendering. What is no access is counted where it stands. -#}
{% set counters = ["row_reads", "parameter_reads", "writes", "barriers", "subgroup_operations"] %}
{% macro tally(counter, amount) -%}
{% if count_cost %}atomicAdd(&cost[{{ counters.index(counter) }}u], {{ amount }});{% endif %}
{%- endmacro %}
