// /// webnorm
// summary = "One invocation per row, which reads its columns three times."
// differs = "The shortest kernel: three loops, no exchange between invocations."
// rung = 1
// layout = "row_per_invocation"
// [derive]
// vector_width = 1
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, workgroup_size)"
// iterations = "3 * steps"
// [accuracy]
// serial_terms = "cols"
// ///
{% set row_elements = true %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/row_norm.wgsl" import norm_functions, declare_sums, add_terms, own_sums, divided with context %}
{% from "lib/l2_gradient.wgsl" import gradient_function with context %}
{% include "lib/plain_rows.wgsl" %}

{{ norm_functions() }}
{{ gradient_function() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ declare_sums() }}
    for (var j = 0u; j < STEPS; j++) {
        let x = load_row_x(row, j, thread);
{{ add_terms("x") }}
    }
    let norm = row_norm({{ own_sums() }});

    var along = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        let x = load_row_x(row, j, thread);
        along += load_row_dy(row, j, thread) * ({{ divided("x") }});
    }

    for (var j = 0u; j < STEPS; j++) {
        let x = load_row_x(row, j, thread);
        let dy = load_row_dy(row, j, thread);
        store_row_dx(row, row_exists, j, thread, gradient(x, dy, norm, along));
    }

    {% endcall %}
}
