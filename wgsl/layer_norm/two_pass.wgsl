// /// webnorm
// summary = "One workgroup per row: the mean, then the centred variance, then the result."
// differs = "One more sweep over x than one_pass, but correct for any mean."
// rung = 3
// layout = "row_per_workgroup"
// [tune]
// hi_lo_mean = [true, false]
// [accuracy]
// serial_terms = "steps"
// rounded_mean = "not hi_lo_mean"
// ///

// The second sweep sums distances from the mean, so nothing large cancels. The sum of these distances is the rounding
// error of the mean, and hi_lo_mean corrects it.
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

    // Differences from a value of the row stay small even if the row is far from 0, and so do the errors of their sum.
    let pivot = pivot_of(row);
    var sum = Vec();
    for (var j = 0u; j < STEPS; j++) {
        sum += where_live(load_input(row, j, thread) - pivot, Vec(), j, thread);
    }
    let mean = pivot + row_sums(vec2(total(sum) * PER_COLUMN, 0.0), thread).x;

    var distances = Vec();
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let d = where_live(load_input(row, j, thread) - mean, Vec(), j, thread);
        distances += d;
        squares += d * (d * PER_COLUMN);
    }
    let sums = row_sums(vec2(total(distances), total(squares)), thread);
{% if hi_lo_mean %}
    // The mean is mean + low, to twice the digits, and the variance about it is smaller by low². A variance beyond
    // float32's range stays infinite, because infinity minus infinity would be NaN.
    let low = sums.x / f32(COLS);
    let variance = select(sums.y, max(sums.y - low * low, 0.0), sums.y < 1e38);
{% else %}
    let variance = sums.y;
{% endif %}
    let rstd = inverseSqrt(variance + params.eps);

    {% call(h) write_row(low="low" if hi_lo_mean else "0.0") %}({{ h }} - mean{{ " - low" if hi_lo_mean }}) * rstd{% endcall %}

    {% endcall %}
}
