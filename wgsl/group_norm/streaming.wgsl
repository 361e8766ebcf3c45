// /// webnorm
// summary = "One workgroup per group of any length, read again for each sweep, up to four elements per access."
// differs = "Has no limit on the group's length. If the groups in progress fit into the cache, all sweeps but the first read from the cache."
// rung = 1
// layout = "row_per_workgroup"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [1, 32, 64, 128, 256, 512, 1024]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software and span > (128 if has_subgroups else 4096)", 32],
//     ["software", 1],
//     "min(512, max_invocations)",
// ]
// subgroups = "has_subgroups and threads_per_row > 1"
// [derive]
// has_mean = 1
// packed = 0
// vector_width = "4 if cols % 4 == 0 and (is_layout_channels_first or channels // groups % 4 == 0) else 1"
// rows_per_workgroup = "1 if threads_per_row > 1 else 32"
// sweep = "min(steps, 15000)"
// [[require]]
// rule = "threads_per_row > 1 or not subgroups"
// why = "with one invocation per group there is no exchange of sums: subgroups must be false"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * groups, rows_per_workgroup)"
// iterations = "24 + 3 * sweep + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "min(steps, 16) + steps // 16"
// ///
{% set row_elements, row_count = true, "(params.batch * groups)" %}
{% set vector_tensors = ["x", "residual", "y", "h"] %}
{% from "lib/moments.wgsl" import moment_reductions, swept_moments, normalized with context %}
{% from "lib/sweep.wgsl" import sweep_row with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/group_norm_row.wgsl" %}

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
