{#- The last `parked` steps of a row stay in workgroup memory, in x's storage format, until the second sweep. With a whole
    row in registers there would be no room for parameters, or for another workgroup whose loads could overlap. -#}
{% from "lib/dtype.wgsl" import storage, in_pairs with context %}
{% from "lib/direct.wgsl" import load_input, unpacked_step with context %}
{% set parked_steps = parked if parked is defined else 0 %}
{% set first_parked = steps - parked_steps %}
{% set x = tensors | selectattr("name", "eq", "x") | first %}
{#- Steps per access. -#}
{% set fetched = 2 if in_pairs(x) else 1 %}
{% macro parking() %}
{% if parked_steps %}
var<workgroup> parked: array<{{ storage(x) }}, {{ parked_steps // fetched * workgroup_size }}>;
{% endif %}
{% endmacro %}
{% macro place_of(j) -%}
parked[{{ (j - first_parked) // fetched * workgroup_size }}u + place]
{%- endmacro %}
{#- Parks the accesses raw0, raw1, ... in their storage format. -#}
{% macro park() %}
{% for j in range(first_parked, steps, fetched) %}
    {{ place_of(j) }} = raw{{ j }};
{% endfor %}
{% endmacro %}
{#- The row as h0, h1, ... -#}
{% macro load_and_park() %}
{% for j in range(steps) %}
{% if j < first_parked %}
    let h{{ j }} = {{ load_input }}(row, {{ j }}u, thread);
{% else %}
{% if j % fetched == 0 %}
    let raw{{ j }} = fetch_x(row, {{ j }}u, thread);
{% endif %}
    let h{{ j }} = {{ unpacked_step("x", "raw" ~ (j - j % fetched), j ~ "u") }};
{% endif %}
{% endfor %}
{{ park() }}
{% endmacro %}
{#- Text of step j in the first sweep, and after it; each invocation reads only its own data. -#}
{% macro held(j) -%}
h{{ j }}
{%- endmacro %}
{% macro from_park(j) -%}
{{ unpacked_step("x", place_of(j), j ~ "u") }}
{%- endmacro %}
{% macro again(j) -%}
{{ held(j) if j < first_parked else from_park(j) }}
{%- endmacro %}
{#- With `parked_weight`, a workgroup that walks over rows keeps the weight there in its storage format. -#}
{% set weight_waits = parked_weight is defined and parked_weight %}
{% set weight = tensors | selectattr("name", "eq", "weight") | first %}
{% macro weight_place(j) -%}
weight_parked[{{ j // (2 if in_pairs(weight) else 1) * workgroup_size }}u + place]
{%- endmacro %}
{#- Declarations at module scope. -#}
{% macro weight_parking() %}
{% if weight_waits %}
var<workgroup> weight_parked: array<{{ storage(weight) }}, {{ steps // (2 if in_pairs(weight) else 1) * workgroup_size }}>;
{% endif %}
{% endmacro %}
{% macro park_weight() %}
{% for j in range(0, steps, 2 if in_pairs(weight) else 1) %}
    {{ weight_place(j) }} = fetch_weight({{ j }}u, thread);
{% endfor %}
{% endmacro %}
{% macro weight_again(j) -%}
{{ unpacked_step("weight", weight_place(j), j ~ "u") }}
{%- endmacro %}
