{#- Text that accesses the tensors of the queries or of the keys. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% set suffix = "4" if lanes == 4 else "" %}
{% set parameters = (["weight"] if weight else []) + (["bias"] if bias else []) %}
{% set kinds = ["q", "k"] if key else ["q"] %}
{#- Text: `body("q")` or `body("k")`, by the row's kind. One branch around all loads keeps them together. -#}
{% macro by_kind(body, some=none) %}
{% set found = some or kinds %}
{% if found | length > 1 %}
    if (head.is_key) {
{{ body("k") }}
    } else {
{{ body("q") }}
    }
{% else %}
{{ body(found[0]) }}
{% endif %}
{% endmacro %}
{#- Text: the Vec from element i of the row's input, and of an array that has both kinds, such as weight. -#}
{% macro load_x(kind, i) -%}
load{{ suffix }}_{{ "q" if qkv else kind }}(head.x + {{ i }})
{%- endmacro %}
{% macro load_parameter(name, kind, i) -%}
load{{ suffix }}_{{ name }}_{{ kind }}(parameter_of(head) + {{ i }})
{%- endmacro %}
{% macro load_dy(kind, i) -%}
load{{ suffix }}_dy{{ kind }}(head.y + {{ i }})
{%- endmacro %}
{#- Text: the factor of the normalized heads, from a weight. -#}
{% macro factor(weight) -%}
({{ weight }} + params.weight_offset)
{%- endmacro %}
