// /// webnorm
// summary = "A workgroup per row, E[x^2] - E[x]^2 in a single sweep. Wrong once the mean is large."
// differs = "Shares a row among the invocations of a workgroup, and reads x twice where naive reads it three times."
// unstable = "E[x^2] - E[x]^2 cancels: with a mean of 1000 standard deviations float32 has no digits left"
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
// rounded_mean = true
// ///

// Kept because so much code in the field does this: it is fast, it passes on benign inputs, and
// `webnorm check` shows where it gives nonsense. The clamp at zero hides a negative variance, not the error.
{% from "lib/sweep.wgsl" import sweep with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/output.wgsl" %}

{% from "lib/reduce.wgsl" import row_reduction with context %}
{{ row_reduction("sum_moments", "vec2<f32>") }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    var sum = Vec();
    var squares = Vec();
    {% call sweep() %}
        let value = load_input(row, j, thread);
        sum += value;
        squares += value * value;
    {% endcall %}
    let moments = sum_moments(vec2(total(sum), total(squares)), place, lane, subgroup_size) / f32(COLS);
    let mean = moments.x;
    const low = 0.0;
    let rstd = inverseSqrt(max(moments.y - mean * mean, 0.0) + params.eps);

    {% call(h) write_row() %}({{ h }} - mean - low) * rstd{% endcall %}

    {% endcall %}
}
