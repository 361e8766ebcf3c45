// /// webnorm
// summary = "One invocation per row, which reads its columns twice."
// differs = "The shortest kernel: two loops, no exchange between invocations."
// rung = 1
// layout = "row_per_invocation"
// [derive]
// vector_width = 1
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, workgroup_size)"
// iterations = "2 * steps"
// [accuracy]
// serial_terms = "cols"
// ///
{% set row_elements = true %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/row_norm.wgsl" import norm_functions, declare_sums, add_terms, own_sums, divided with context %}
{% include "lib/plain_rows.wgsl" %}

{{ norm_functions() }}

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

    for (var j = 0u; j < STEPS; j++) {
        let x = load_row_x(row, j, thread);
        store_row_y(row, row_exists, j, thread, {{ divided("x") }});
    }

    {% endcall %}
}
