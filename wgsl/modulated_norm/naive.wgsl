// /// webnorm
// summary = "One invocation per row, which reads the row two or three times."
// differs = "The shortest kernel: loops over a row, no exchange between invocations."
// layout = "row_per_invocation"
// [derive]
// vector_width = 1
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * rows, workgroup_size)"
// iterations = "3 * steps"
// [accuracy]
// serial_terms = "cols"
// ///
{% set row_elements, row_count = true, "(params.batch * rows)" %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/modulated_norm_row.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% if has_mean %}
    // The mean of the distances from one element, which are small even if the mean is large.
    let pivot = pivot_of(row);
    var sum = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        sum += load_row(row, j, thread) - pivot;
    }
    let mean = pivot + sum * PER_COLUMN;

    // The variance, and the rounding error of the mean.
    var low = 0.0;
    var squares = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        let d = load_row(row, j, thread) - mean;
        low += d * PER_COLUMN;
        squares += d * d * PER_COLUMN;
    }
    let rstd = inverseSqrt(max(squares - low * low, 0.0) + params.eps);
{% else %}
    var squares = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        let h = load_row(row, j, thread);
        squares += h * h * PER_COLUMN;
    }
    let rstd = inverseSqrt(squares + params.eps);
{% endif %}

    for (var j = 0u; j < STEPS; j++) {
        let h = load_row(row, j, thread);
        store_row(row, row_exists, j, thread, h, {{ "(h - mean - low)" if has_mean else "h" }} * rstd);
    }

    {% endcall %}
}
