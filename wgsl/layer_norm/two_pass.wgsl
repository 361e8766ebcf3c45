// /// webnorm
// summary = "A workgroup per row: the mean, then the centred variance, then the result."
// differs = "One more sweep over x than one_pass, and right for any mean."
// rung = 3
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// hi_lo_mean = [true, false]
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
// rounded_mean = "not hi_lo_mean"
// ///

// The second sweep measures distances from the mean, so nothing large cancels. Its by-product, the sum
// of those distances, is what the rounding of the mean took away: with hi_lo_mean it is given back.
{% from "lib/moments.wgsl" import moment_reductions, swept_moments with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/interface.wgsl" %}

{% set uses_pivot = 1 %}
{% include "lib/row.wgsl" %}

{% include "lib/output.wgsl" %}

{{ moment_reductions() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ swept_moments() }}
    {% call(h) write_row() %}({{ h }} - mean - low) * rstd{% endcall %}

    {% endcall %}
}
