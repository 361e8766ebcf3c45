// /// webnorm
// summary = "A row stays in registers: one read, exact sweeps over registers, one write."
// differs = "Reads x once, up to four elements per access; short rows share a workgroup."
// rung = 2
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// subgroups = [true, false]
// threads_per_row = [4, 8, 16, 32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// sweeps = [2, 1]
// [default]
// threads_per_row = [
//     ["software", [
//         ["cols <= 256", 4],
//         ["cols <= 1024", 16],
//         ["cols <= 2048", 32],
//         ["cols <= 4096", 64],
//         ["cols <= 16384", 256],
//         512,
//     ]],
//     ["has_subgroups and cols % 384 == 0 and cols <= 1536", 96],
//     ["has_subgroups and cols % 768 == 0 and cols <= 3072", 192],
//     ["has_subgroups and cols % 1536 == 0 and cols <= 6144", 384],
//     ["itemsize == 2 and cols <= 512", 32],
//     ["itemsize == 2 and cols <= 1024", 64],
//     ["itemsize == 2 and cols <= 2048", 128],
//     ["itemsize == 2 and cols <= 16384", "min(256, max_invocations)"],
//     ["cols <= 256", 32],
//     ["cols <= 1024", 128],
//     ["cols <= 2048", 256],
//     ["cols <= 32768 and itemsize == 4", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["software", [["cols > 256", 1], 4]], ["threads_per_row > 32", 1], 4]
// subgroups = "has_subgroups"
// [derive]
// packed = 0
// vector_width = "4 if cols % 4 == 0 else 1"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "threads_per_row that is not a power of two needs subgroups and one row per workgroup"
// [[require]]
// rule = "has_mean or sweeps == 2"
// why = "sweeps 1 needs a norm with a mean: it finds mean and variance in one sweep"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * rows, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///

// Widths of diffusion transformers, such as 1152 and 3072, are three times a power of two. A row of such a width divides
// evenly among 96, 192 or 384 invocations.
{% set row_elements, row_count = true, "(params.batch * rows)" %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/modulated_norm_row.wgsl" %}

{{ moment_reductions() }}
{% macro held(j) -%}h{{ j }}{%- endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% for j in range(steps) %}
    let h{{ j }} = load_row(row, {{ j }}u, thread);
{% endfor %}
{{ held_moments(held, held, steps, "pivot_of(row)") }}
{{ held_scale(steps) }}
{% for j in range(steps) %}
    store_row(row, row_exists, {{ j }}u, thread, h{{ j }}, {{ held_normalized(j, steps, held) }});
{% endfor %}

    {% endcall %}
}
