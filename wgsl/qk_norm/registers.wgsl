// /// webnorm
// summary = "A head's elements stay in registers: one read, exact sweeps over registers, one write."
// differs = "A few invocations share a head, and many heads a workgroup; up to four elements per access."
// rung = 2
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8, 16, 32, 64]
// early_parameters = [true, false]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["cols <= 16", 2],
//     ["cols <= 32", 4],
//     ["cols <= 96", 8],
//     ["cols <= 128", 8],
//     ["cols <= 1024", 32],
//     ["cols <= 4096", 128],
//     ["cols <= 16384", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["threads_per_row <= 4", 64], ["threads_per_row <= 8", 32], ["threads_per_row <= 16", 16], ["threads_per_row <= 32", 8], 1]
// early_parameters = false
// subgroups = "has_subgroups"
// [derive]
// packed = 0
// vector_width = "4 if cols % 4 == 0 and q_gap % 4 == 0 and (qkv or not key or k_gap % 4 == 0) else 1"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * tokens * heads, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.batch * " ~ tokens * heads ~ "u)" %}
{% from "lib/dtype.wgsl" import lanes with context %}
{% from "lib/direct.wgsl" import whole with context %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/qk_norm_access.wgsl" import suffix, parameters, by_kind, load_x, load_parameter, factor with context %}
{% include "lib/qk_norm_row.wgsl" %}

{{ moment_reductions() }}
{% macro held(j) -%}h{{ j }}{%- endmacro %}
{% macro load(kind) %}
{% for j in range(steps) %}
        h{{ j }} = {{ load_x(kind, "i" ~ j) }};
{% for name in parameters if early_parameters %}
        {{ name }}{{ j }} = {{ load_parameter(name, kind, "i" ~ j) }};
{% endfor %}
{% endfor %}
{% endmacro %}
{#- A parameter at step j: in a register, or loaded now. -#}
{% macro parameter(name, kind, j) -%}
{{ name ~ j if early_parameters else load_parameter(name, kind, "i" ~ j) }}
{%- endmacro %}
{% macro store(kind) %}
{% for j in range(steps) %}
        if (live({{ j }}u, thread)) {
            let y = {{ held_normalized(j, steps, held) }};
            store{{ suffix }}_y{{ kind }}(head.y + i{{ j }}, y{{ " * " ~ factor(parameter("weight", kind, j)) if weight }}{{ " + " ~ parameter("bias", kind, j) if bias }});
        }
{% endfor %}
{% endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    let head = head_of(row);
{% for j in range(steps) %}
    let i{{ j }} = {{ lanes ~ "u * " if lanes > 1 }}inside({{ j }}u, thread);
    var h{{ j }}: Vec;
{% for name in parameters if early_parameters %}
    var {{ name }}{{ j }}: Vec;
{% endfor %}
{% endfor %}
{{ by_kind(load) }}
{% for j in range(steps) if not whole %}
    h{{ j }} = where_live(h{{ j }}, Vec(), {{ j }}u, thread);
{% endfor %}
{{ held_moments(held, held, steps, "pivot_of(row)") }}
{{ held_scale(steps) }}
    if (row_exists) {
{{ by_kind(store) }}
    }

    {% endcall %}
}
