// /// webnorm
// summary = "Several invocations per row, x and dy stay in registers: one read, two reductions, one write."
// differs = "Reads x and dy once, up to four columns per access; small rows share a workgroup."
// rung = 3
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// rows_per_workgroup = [1, 2, 4, 8, 16]
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
// rows_per_workgroup = [["software", [["cols > 256", 1], 4]], ["threads_per_row > 32", 1], 4]
// subgroups = "has_subgroups"
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
// [[require]]
// rule = "scalars <= 32"
// why = "more than 32 columns of x and dy per invocation do not fit registers"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, rows_per_workgroup)"
// iterations = "24 + 6 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements = true %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/l2_gradient.wgsl" import gradient_function with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/row_norm.wgsl" import norm_functions, declare_sums, add_terms, own_sums, divided with context %}
{% include "lib/plain_rows.wgsl" %}

{{ norm_functions() }}
{{ gradient_function() }}
{{ row_reduction("sum_along", "f32") }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% for j in range(steps) %}
    let x{{ j }} = load_row_x(row, {{ j }}u, thread);
    let dy{{ j }} = load_row_dy(row, {{ j }}u, thread);
{% endfor %}
{{ declare_sums() }}
{% for j in range(steps) %}
{{ add_terms("x" ~ j) }}
{% endfor %}
    let norm = row_norm(sum_terms({{ own_sums() }}, place, lane, subgroup_size));

    var products = dy0 * ({{ divided("x0") }});
{% for j in range(1, steps) %}
    products += dy{{ j }} * ({{ divided("x" ~ j) }});
{% endfor %}
    let along = sum_along({{ total("products") }}, place, lane, subgroup_size);
{% for j in range(steps) %}
    store_row_dx(row, row_exists, {{ j }}u, thread, gradient(x{{ j }}, dy{{ j }}, norm, along));
{% endfor %}

    {% endcall %}
}
