// /// webnorm
// summary = "Welford's sweep with subgroup shuffles, scalar or vec4, several rows to a workgroup."
// differs = "Joins in registers through shuffles where welford goes through workgroup memory, and reads 16 bytes at a time."
// rung = 5
// [features]
// subgroups = true
// [tune]
// threads_per_row = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// vector_width = [4, 1]
// [default]
// threads_per_row = "8 if software else (32 if cols <= 256 else (128 if cols <= 2048 else 256))"
// rows_per_workgroup = "1 if software or threads_per_row > 32 else 4"
// [derive]
// subgroups = 1
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "ceil_div(span if vector_width == 4 else cols, threads_per_row * vector_width)"
// [[require]]
// rule = "vector_width == 4 or not packed"
// why = "types narrower than a word are read four at a time: vector_width 4"
// [[require]]
// rule = "workgroup_size <= min(1024, max_invocations)"
// why = "threads_per_row * rows_per_workgroup is over the invocations of a workgroup"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(ceil_div(rows, rows_per_workgroup), max_workgroups)"
// iterations = "ceil_div(rows, rows_per_workgroup * max_workgroups) * (1 + 4 * min(steps, 15000))"
// [accuracy]
// serial_terms = "steps + 12"
// rounded_mean = true
// ///

// The same arithmetic as welford. A row shorter than a subgroup shares it with other rows; one longer
// meets in workgroup memory once. The seed of this kernel took a subgroup to be a workgroup of 32; this one
// takes whatever size the adapter has.
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
