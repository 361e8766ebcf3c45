// /// webnorm
// summary = "A row stays in registers: one read, exact sweeps over registers, one write."
// differs = "Reads x once, up to eight elements per access; short rows share a workgroup."
// rung = 2
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [4, 8, 16, 32, 48, 64, 96, 128, 144, 152, 160, 192, 224, 256, 288, 304, 320, 384, 448, 512, 640, 768, 896, 1024]
// vector_width = [4, 8, 1]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// scales_first = [false, true]
// sweeps = [1, 2]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software", [["cols <= 256", 4], ["cols <= 1024", 16], ["cols <= 2048", 32], ["cols <= 4096", 64], ["cols <= 16384", 256], 512]],
//     ["itemsize == 2", [
//         ["cols <= 1152", 32],
//         ["cols <= 1536", 64],
//         ["cols <= 2304 and has_subgroups", 96],
//         ["cols <= 3072", 128],
//         ["cols <= 4608 and has_subgroups", 192],
//         ["cols <= 6144", "min(256, max_invocations)"],
//         ["cols <= 16384", "min(512, max_invocations)"],
//         "min(1024, max_invocations)",
//     ]],
//     ["cols <= 256", 32],
//     ["cols <= 1024", 128],
//     ["cols <= 2048", "min(256, max_invocations)"],
//     ["cols <= 32768", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["software", [["span > 256", 1], 4]], ["threads_per_row > 32", 1], ["itemsize == 2", 2], 4]
// sweeps = "2 if has_mean and not software else 1"
// vector_width = [["cols % 4 > 0", 1], ["cols % 8 > 0 or itemsize == 4", 4], 8]
// scales_first = "vector_width == 8"
// subgroups = "has_subgroups"
// [derive]
// packed = 0
// [[require]]
// rule = "not scales_first or vector_width == 8"
// why = "scales_first needs vector_width 8"
// [[require]]
// rule = "cols % vector_width == 0"
// why = "rows must begin at multiples of vector_width elements"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "threads_per_row that is not a power of two needs subgroups and one row per workgroup"
// [[require]]
// rule = "has_mean or sweeps == 1"
// why = "sweeps 2 needs a norm with a mean: it finds the mean first and then the variance"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * rows, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.batch * rows)" %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/modulated_norm_row.wgsl" %}

{{ moment_reductions() }}
{% macro held(j) -%}h{{ j }}{%- endmacro %}
{% set pairs = vector_width == 8 %}
{% macro load_all_scales() %}
{% for j in range(0, steps, 2) %}
    let scales{{ j }} = load_scales(row, {{ j }}u, thread);
{% endfor %}
{% endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% for j in range(0, steps, 2 if pairs else 1) %}
{% if pairs %}
    let pair{{ j }} = load_pair(row, {{ j }}u, thread);
    let h{{ j }} = pair{{ j }}[0];
    let h{{ j + 1 }} = pair{{ j }}[1];
{% else %}
    let h{{ j }} = load_row(row, {{ j }}u, thread);
{% endif %}
{% endfor %}
{{ load_all_scales() if scales_first }}
{{ held_moments(held, held, steps, "pivot_of(row)") }}
{{ held_scale(steps) }}
{{ load_all_scales() if pairs and not scales_first }}
{% for j in range(0, steps, 2 if pairs else 1) %}
{% if pairs %}
    store_pair(row, row_exists, {{ j }}u, thread, pair{{ j }}, {{ held_normalized(j, steps, held) }}, {{ held_normalized(j + 1, steps, held) }}, scales{{ j }});
{% else %}
    store_row(row, row_exists, {{ j }}u, thread, h{{ j }}, {{ held_normalized(j, steps, held) }});
{% endif %}
{% endfor %}

    {% endcall %}
}
