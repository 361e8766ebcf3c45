// /// webnorm
// summary = "A workgroup per row of any length, read again for each sweep, 16 bytes at a time."
// differs = "Has no limit on the row: the sweeps after the first are served by the cache where it holds the rows at work."
// rung = 5
// preference = 1
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [32, 64, 128, 256, 512, 1024]
// vector_width = [4, 1]
// subgroups = [true, false]
// [default]
// threads_per_row = "32 if software else min(512, max_invocations)"
// subgroups = "has_subgroups"
// [derive]
// steps = "ceil_div(span if vector_width == 4 else cols, threads_per_row * vector_width)"
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// [[require]]
// rule = "vector_width == 4 or not packed"
// why = "types narrower than a word are read four at a time: vector_width 4"
// [[require]]
// rule = "workgroup_size <= min(1024, max_invocations)"
// why = "threads_per_row is over the invocations of a workgroup"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(rows, max_workgroups)"
// iterations = "ceil_div(rows, max_workgroups) * (4 + 4 * min(steps, 15000) + 3 * (threads_per_row // 16))"
// [accuracy]
// serial_terms = "steps"
// ///

// The kernel for what no other takes: nothing of a row is kept but its sums.
{% from "lib/moments.wgsl" import moment_reductions, swept_moments with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/output.wgsl" %}

{{ moment_reductions() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ swept_moments() }}
    {% call(h) write_row() %}{{ h }} * rstd{% endcall %}

    {% endcall %}
}
