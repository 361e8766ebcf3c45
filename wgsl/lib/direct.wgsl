{#- Text that takes the place of calls of the library's functions, so that a shader has no call that only returns its
    argument. The functions are there for kernels' own text. -#}
{% from "lib/dtype.wgsl" import lanes, shifted with context %}
{#- Steps that an iteration of a loop over a row takes. Mesa's llvmpipe ends a shader's loops without a word after 65535
    iterations in all. -#}
{% set unroll = (4 * steps + 59999) // 60000 %}
{#- Whether the Vecs of all steps are the row, and none lies past it. -#}
{% set whole = not shifted and steps * (row_parts if row_parts is defined else 1) * threads_per_row * lanes == cols and steps % unroll == 0 %}
{#- The name of the function that loads what is normalised. -#}
{% set load_input = "load_input" if has_residual else "load_x" %}
{% macro where_live(value, otherwise, j) -%}
{{ value if whole else "where_live(" ~ value ~ ", " ~ otherwise ~ ", " ~ j ~ ", thread)" }}
{%- endmacro %}
{% macro total(value) -%}
{{ value if lanes == 1 else "total(" ~ value ~ ")" }}
{%- endmacro %}
{#- The Vec of step j, out of an access as it lies in memory. -#}
{% macro unpacked_step(name, raw, j) -%}
{% set tensor = tensors | selectattr("name", "eq", name) | first -%}
{% set is_vec = whole and tensor.dtype == "float32" and not (name == "weight" and zero_centered_weight) -%}
{{ raw if is_vec else name ~ "_of(" ~ raw ~ ", " ~ j ~ ", thread)" }}
{%- endmacro %}
