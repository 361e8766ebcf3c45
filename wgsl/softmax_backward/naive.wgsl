// /// webnorm
// summary = "One invocation per row, two sweeps: sum, output."
// differs = "The shortest kernel: two loops, no exchange between invocations."
// rung = 1
// layout = "row_per_invocation"
// [derive]
// vector_width = 1
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * queries, workgroup_size)"
// iterations = "2 * steps"
// [accuracy]
// serial_terms = "cols"
// ///
{% set row_elements, row_count = true, "(params.batch * queries)" %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/softmax_gradient_row.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    var sum = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        sum += summand(load_row_y(row, j, thread), load_row_dy(row, j, thread));
    }

    for (var j = 0u; j < STEPS; j++) {
        store_row(row, row_exists, j, thread, load_row_y(row, j, thread), load_row_dy(row, j, thread), sum);
    }

    {% endcall %}
}
