{#- Text that replaces calls of the library's functions, so that a shader has no call that only returns its argument.
    Kernels themselves may call the functions. -#}
{% from "lib/dtype.wgsl" import lanes, shifted with context %}
{#- Steps per iteration of a loop over a row. Mesa's llvmpipe silently ends a shader's loops after 65535 iterations in
    total. -#}
{% set unroll = (4 * steps + 59999) // 60000 %}
{#- Whether the Vecs of all steps are inside the row. -#}
{% set whole = not shifted and steps * (row_parts if row_parts is defined else 1) * threads_per_row * lanes == cols and steps % unroll == 0 %}
{#- The name of the function that loads the input of the norm. Ops with an op.py define `load_row`. -#}
{% set load_input = "load_row" if row_elements is defined else ("load_input" if has_residual else "load_x") %}
{% macro where_live(value, otherwise, j) -%}
{{ value if whole else "where_live(" ~ value ~ ", " ~ otherwise ~ ", " ~ j ~ ", thread)" }}
{%- endmacro %}
{% macro total(value) -%}
{{ value if lanes == 1 else "total(" ~ value ~ ")" }}
{%- endmacro %}
{#- The Vec of step j from an access in its storage format. -#}
{% macro unpacked_step(name, raw, j) -%}
{% set tensor = tensors | selectattr("name", "eq", name) | first -%}
{% set is_vec = whole and tensor.dtype == "float32" and not (name == "weight" and weight_offset) -%}
{{ raw if is_vec else name ~ "_of(" ~ raw ~ ", " ~ j ~ ", thread)" }}
{%- endmacro %}
