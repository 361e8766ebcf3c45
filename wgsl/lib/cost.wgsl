{#- Counters for `webnorm show --cost`; empty in an ordinary rendering. Operations other than accesses are counted where
    they are. -#}
{% set counters = ["row_reads", "parameter_reads", "writes", "barriers", "subgroup_operations"] %}
{% macro tally(counter, amount) -%}
{% if count_cost %}atomicAdd(&cost[{{ counters.index(counter) }}u], {{ amount }});{% endif %}
{%- endmacro %}
