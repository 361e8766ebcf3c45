// /// webnorm
// summary = "A row stays in registers: one read, exact sweeps over registers, one write."
// differs = "Reads x once, up to four elements per access; short rows share a workgroup."
// rung = 2
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [4, 8, 16, 32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software", [["cols <= 256", 4], ["cols <= 1024", 16], ["cols <= 2048", 32], ["cols <= 4096", 64], "min(256, max_invocations)"]],
//     ["cols <= 64", 4],
//     ["cols <= 128", 8],
//     ["cols <= 256", 16],
//     ["cols <= 512", 32],
//     ["cols <= 1024", 64],
//     ["cols <= 2048", 128],
//     ["cols <= 4096", "min(256, max_invocations)"],
//     ["cols <= 32768", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["software", [["span > 256", 1], 4]], ["threads_per_row <= 8", 16], ["threads_per_row <= 16", 8], ["threads_per_row <= 32", 4], 1]
// subgroups = "has_subgroups"
// [derive]
// packed = 0
// vector_width = "4 if cols % 4 == 0 else 1"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "threads_per_row that is not a power of two needs subgroups and one row per workgroup"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows * heads, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.rows * heads)" %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/gated_norm_row.wgsl" import late_gate with context %}
{% include "lib/gated_norm_row.wgsl" %}

{{ moment_reductions() }}
{% macro held(j) -%}h{{ j }}{%- endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% for j in range(steps) %}
    let h{{ j }} = load_row(row, {{ j }}u, thread);
    let z{{ j }} = {{ late_gate(j ~ "u") }};
{% endfor %}
{{ held_moments(held, held, steps, "pivot_of(row)") }}
{{ held_scale(steps) }}
{% for j in range(steps) %}
    store_row(row, row_exists, {{ j }}u, thread, {{ held_normalized(j, steps, held) }}, z{{ j }});
{% endfor %}

    {% endcall %}
}
