// /// webnorm
// summary = "One invocation per row, three sweeps: maximum, sum, output."
// differs = "The shortest kernel: three loops, no exchange between invocations."
// rung = 1
// layout = "row_per_invocation"
// [derive]
// vector_width = 1
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * queries, workgroup_size)"
// iterations = "3 * steps"
// [accuracy]
// serial_terms = "cols"
// ///
{% set row_elements, row_count = true, "(params.batch * queries)" %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/softmax_row.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // If every column is -inf, the maximum minus itself would be NaN.
    var largest = LOWEST;
    for (var j = 0u; j < STEPS; j++) {
        largest = max(largest, load_row(row, j, thread));
    }

    var sum = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        sum += exp(load_row(row, j, thread) - largest);
    }

    for (var j = 0u; j < STEPS; j++) {
{% if log %}
        store_row(row, row_exists, j, thread, load_row(row, j, thread) - largest - logarithm_of(sum));
{% else %}
        store_row(row, row_exists, j, thread, exp(load_row(row, j, thread) - largest) * reciprocal_of(sum));
{% endif %}
    }

    {% endcall %}
}
