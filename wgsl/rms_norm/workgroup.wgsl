// /// webnorm
// summary = "A workgroup per row: the mean of the squares, then the result."
// differs = "Shares a row among the invocations of a workgroup; without a mean to take off, one sweep fewer than two_pass of layer_norm."
// rung = 2
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// [default]
// threads_per_row = "8 if software else min(256, max_invocations)"
// [derive]
// subgroups = 0
// vector_width = "4 if packed else 1"
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// steps = "ceil_div(span if packed else cols, threads_per_row * vector_width)"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(rows, max_workgroups)"
// iterations = "ceil_div(rows, rows_per_workgroup * max_workgroups) * (1 + 4 * min(steps, 15000))"
// [accuracy]
// serial_terms = "steps"
// ///

// Nothing is subtracted, so nothing cancels: the plain sum of squares is stable. Each square is divided by
// the number of columns before it is added, so that values of 1e18 do not overflow.
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% from "lib/moments.wgsl" import moment_reductions, swept_moments with context %}
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
