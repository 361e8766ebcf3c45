// /// webnorm
// summary = "A workgroup per row, mean and variance in one stable sweep, joined in workgroup memory."
// differs = "Stable like two_pass with one sweep fewer; a division per element instead."
// rung = 4
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
// workgroup_count = "min(ceil_div(rows, rows_per_workgroup), max_workgroups)"
// iterations = "ceil_div(rows, rows_per_workgroup * max_workgroups) * (1 + 4 * min(steps, 15000))"
// [accuracy]
// serial_terms = "steps + 12"
// rounded_mean = true
// ///

// Mean and squared deviations are updated value by value (Welford), and the invocations' results are
// joined pairwise (Chan). The mean is rounded to float32, and that is what limits the result.
{% from "lib/sweep.wgsl" import sweep with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/output.wgsl" %}

{% include "lib/welford.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    let moments = joined_row(own_moments(row, thread), place, lane, subgroup_size);
    let mean = moments.x;
    const low = 0.0;
    let rstd = inverseSqrt(moments.y + params.eps);

    {% call(h) write_row() %}({{ h }} - mean - low) * rstd{% endcall %}

    {% endcall %}
}
