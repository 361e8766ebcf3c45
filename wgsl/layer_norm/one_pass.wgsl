// /// webnorm
// summary = "One workgroup per row, E[x^2] - E[x]^2 in a single sweep. Wrong if the mean is large."
// differs = "Shares a row among the invocations of a workgroup, and reads x twice; naive reads it three times."
// unstable = "E[x^2] - E[x]^2 cancels: with a mean of 1000 standard deviations float32 has no digits left"
// rung = 2
// layout = "row_per_workgroup"
// [accuracy]
// serial_terms = "steps"
// rounded_mean = true
// ///

// This kernel is here because much existing code works this way. It is fast and passes on benign inputs, and
// `webnorm check` shows where it is wrong. The clamp at zero hides a negative variance, but not the error.
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/norm.wgsl" %}

var<workgroup> partials: array<vec2<f32>, {{ workgroup_size }}>;

// Sums over the row's invocations, by a tree: each level halves the number of terms.
fn row_sums(own: vec2<f32>, thread: u32) -> vec2<f32> {
    partials[thread] = own;
    for (var left = THREADS / 2u; left > 0u; left /= 2u) {
        workgroupBarrier();
        if (thread < left) {
            partials[thread] += partials[thread + left];
        }
    }
    workgroupBarrier();
    let sums = partials[0];
    workgroupBarrier();  // before the next ones are written
    return sums;
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    var sum = Vec();
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let value = load_input(row, j, thread);
        sum += value;
        squares += value * value;
    }
    let moments = row_sums(vec2(total(sum), total(squares)), thread) / f32(COLS);
    let mean = moments.x;
    let variance = max(moments.y - mean * mean, 0.0);
    let rstd = inverseSqrt(variance + params.eps);

    {% call(h) write_row(low="0.0") %}({{ h }} - mean) * rstd{% endcall %}

    {% endcall %}
}
