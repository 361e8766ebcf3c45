// /// webnorm
// summary = "One invocation per group, which reads its channels three times."
// differs = "The shortest kernel: three loops, no exchange between invocations."
// layout = "row_per_invocation"
// [derive]
// has_mean = 1
// vector_width = 1
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * groups, workgroup_size)"
// iterations = "3 * steps"
// [accuracy]
// serial_terms = "cols"
// ///
{% set row_elements, row_count = true, "(params.batch * groups)" %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/group_norm_row.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // The mean of the distances from one element, which are small even if the mean is large.
    let pivot = pivot_of(row);
    var sum = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        sum += load_row(row, j, thread) - pivot;
    }
    let mean = pivot + sum * PER_COLUMN;

    // The variance, and the rounding error of the mean.
    var deviations = 0.0;
    var squares = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        let d = load_row(row, j, thread) - mean;
        deviations += d * PER_COLUMN;
        squares += d * d * PER_COLUMN;
    }
    let variance = max(squares - deviations * deviations, 0.0);
    let rstd = inverseSqrt(variance + params.eps);

    for (var j = 0u; j < STEPS; j++) {
        let h = load_row(row, j, thread);
        store_row(row, row_exists, j, thread, h, (h - mean - deviations) * rstd);
    }

    {% endcall %}
}
