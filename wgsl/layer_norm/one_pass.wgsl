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
// vector_width = 1
// access_width = 1
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// steps = "ceil_div(cols, threads_per_row)"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// [accuracy]
// serial_terms = "steps"
// rounded_mean = true
// ///

// Kept because so much code in the field does this: it is fast, it passes on benign inputs, and
// `webnorm check` shows where it gives nonsense. The clamp at zero hides a negative variance, not the error.
{% from "lib/sweep.wgsl" import sweep with context %}
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/affine.wgsl" %}

{% from "lib/reduce.wgsl" import row_reduction with context %}
{{ row_reduction("sum_moments", "vec2<f32>") }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% include "lib/locate.wgsl" %}

    var own = vec2<f32>();
    {% call sweep() %}
        let value = load_x(row, j, thread);
        own += vec2(value, value * value);
    {% endcall %}
    let moments = sum_moments(own, place, lane, subgroup_size) / f32(COLS);
    let mean = moments.x;
    let rstd = inverseSqrt(max(moments.y - mean * mean, 0.0) + params.eps);

    {% call sweep() %}
        let normalized = (load_x(row, j, thread) - mean) * rstd;
        store_y(row, row_exists, j, thread, affine(normalized, j, thread));
    {% endcall %}
}
