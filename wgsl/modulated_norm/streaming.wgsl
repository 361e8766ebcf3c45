// /// webnorm
// summary = "One workgroup per row of any length, read again for each sweep."
// differs = "Has no limit on the row's length. All sweeps but the first read from the cache, if the rows in progress fit into it."
// rung = 1
// layout = "row_per_workgroup"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [1, 32, 64, 128, 256, 512, 1024]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software and has_subgroups and 128 < span <= 32768", 32],
//     ["software", 1],
//     "min(512, max_invocations)",
// ]
// subgroups = "has_subgroups and threads_per_row > 1"
// [derive]
// packed = 0
// vector_width = "4 if cols % 4 == 0 else 1"
// rows_per_workgroup = "1 if threads_per_row > 1 else 32"
// sweep = "min(steps, 15000)"
// [[require]]
// rule = "threads_per_row > 1 or not subgroups"
// why = "with one invocation per row there is no exchange of sums: subgroups must be false"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * rows, rows_per_workgroup)"
// iterations = "24 + 3 * sweep + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.batch * rows)" %}
{% from "lib/moments.wgsl" import moment_reductions, swept_moments, normalized with context %}
{% from "lib/sweep.wgsl" import sweep_row with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/modulated_norm_row.wgsl" %}

{{ moment_reductions() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ swept_moments() }}
    {% call sweep_row() %}
        store_row(row, row_exists, j, thread, h, {{ normalized("h") }});
    {% endcall %}

    {% endcall %}
}
