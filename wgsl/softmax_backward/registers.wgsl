// /// webnorm
// summary = "Several invocations per row, y and dy stay in registers: one read, one reduction, one write."
// differs = "Reads y and dy once, up to four columns per access; subgroups or workgroup memory join the sum."
// rung = 3
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// rows_per_workgroup = [1, 2, 4, 8]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software", [
//         ["cols <= 128", 4],
//         ["cols <= 512", 16],
//         ["cols <= 2048", 64],
//         "min(256, max_invocations)",
//     ]],
//     ["itemsize == 2", [
//         ["cols <= 512", 32],
//         ["cols <= 1024", 64],
//         ["cols <= 2048", 128],
//         ["cols <= 8192", "min(256, max_invocations)"],
//         ["cols <= 16384", "min(512, max_invocations)"],
//         "min(1024, max_invocations)",
//     ]],
//     ["cols <= 256", 32],
//     ["cols <= 1024", 128],
//     ["cols <= 2048", "min(256, max_invocations)"],
//     ["cols <= 16384", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["software", [["cols <= 256", 4], 1]], ["threads_per_row <= 32", 4], 1]
// subgroups = "has_subgroups"
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
// [[require]]
// rule = "scalars <= 32"
// why = "more than 32 columns of y and dy per invocation do not fit registers"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * queries, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.batch * queries)" %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% include "lib/softmax_gradient_row.wgsl" %}

{{ row_reduction("sum_row", "f32") }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% for j in range(steps) %}
    let y{{ j }} = load_row_y(row, {{ j }}u, thread);
    let dy{{ j }} = load_row_dy(row, {{ j }}u, thread);
{% endfor %}
    var own = summand(y0, dy0);
{% for j in range(1, steps) %}
    own += summand(y{{ j }}, dy{{ j }});
{% endfor %}
    let sum = sum_row({{ total("own") }}, place, lane, subgroup_size);
{% for j in range(steps) %}
    store_row(row, row_exists, {{ j }}u, thread, y{{ j }}, dy{{ j }}, sum);
{% endfor %}

    {% endcall %}
}
