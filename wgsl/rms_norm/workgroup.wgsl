// /// webnorm
// summary = "One workgroup per row: the mean of the squares, then the result."
// differs = "Shares a row among the invocations of a workgroup. Without a mean it takes one sweep fewer than two_pass of layer_norm."
// rung = 2
// layout = "row_per_workgroup"
// [accuracy]
// serial_terms = "steps"
// ///

// Nothing is subtracted, so nothing cancels: the plain sum of squares is stable.
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/norm.wgsl" %}

var<workgroup> partials: array<f32, {{ workgroup_size }}>;

// The sum over the row's invocations, by a tree: each level halves the number of terms.
fn row_sum(own: f32, thread: u32) -> f32 {
    partials[thread] = own;
    for (var left = THREADS / 2u; left > 0u; left /= 2u) {
        workgroupBarrier();
        if (thread < left) {
            partials[thread] += partials[thread + left];
        }
    }
    workgroupBarrier();
    let sum = partials[0];
    workgroupBarrier();  // before the next row's are written
    return sum;
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // Each square is divided before it is added, so that values of 1e18 do not overflow.
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let value = load_input(row, j, thread);
        squares += value * (value * PER_COLUMN);
    }
    let rstd = inverseSqrt(row_sum(total(squares), thread) + params.eps);

    {% call(h) write_row() %}{{ h }} * rstd{% endcall %}

    {% endcall %}
}
