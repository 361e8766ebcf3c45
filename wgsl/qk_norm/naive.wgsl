// /// webnorm
// summary = "One invocation per head of a token, which reads its elements three times."
// differs = "The shortest kernel: loops over a row, no exchange between invocations."
// layout = "row_per_invocation"
// [derive]
// vector_width = 1
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * tokens * heads, workgroup_size)"
// iterations = "3 * steps"
// [accuracy]
// serial_terms = "cols"
// ///
{% set row_elements, row_count = true, "(params.batch * " ~ tokens * heads ~ "u)" %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/qk_norm_access.wgsl" import by_kind, load_parameter, factor with context %}
{% include "lib/qk_norm_row.wgsl" %}

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
        let x = load_row(row, j, thread);
        squares += x * (x * PER_COLUMN);
    }
    let rstd = inverseSqrt(squares + params.eps);
{% endif %}

    let head = head_of(row);
    for (var j = 0u; j < STEPS && row_exists; j++) {
        let y = (load_row(row, j, thread){{ " - mean - low" if has_mean }}) * rstd;
{% macro store(kind) %}
        store_y{{ kind }}(head.y + j, y{{ " * " ~ factor(load_parameter("weight", kind, "j")) if weight }}{{ " + " ~ load_parameter("bias", kind, "j") if bias }});
{% endmacro %}
{{ by_kind(store) }}
    }

    {% endcall %}
}
