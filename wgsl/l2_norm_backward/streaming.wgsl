// /// webnorm
// summary = "One workgroup per row of any length, which it reads three times."
// differs = "No column stays in registers: a sweep for the norm, one for the sum and one for the output."
// rung = 2
// layout = "row_per_workgroup"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [32, 64, 128, 256, 512, 1024]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software and cols <= 2048", 32],
//     ["software", "min(256, max_invocations)"],
//     ["cols <= 32768", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// subgroups = "has_subgroups"
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// iterations = "24 + 3 * steps + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements = true %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/l2_gradient.wgsl" import gradient_function with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/row_norm.wgsl" import norm_functions, declare_sums, add_terms, own_sums, divided with context %}
{% from "lib/sweep.wgsl" import sweep with context %}
{% include "lib/plain_rows.wgsl" %}

{{ norm_functions() }}
{{ gradient_function() }}
{{ row_reduction("sum_along", "f32") }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ declare_sums() }}
    {% call sweep() %}
        let x = load_row_x(row, j, thread);
{{ add_terms("x") }}
    {% endcall %}
    let norm = row_norm(sum_terms({{ own_sums() }}, place, lane, subgroup_size));
    var products = Vec();
    {% call sweep() %}
        let x = load_row_x(row, j, thread);
        products += load_row_dy(row, j, thread) * ({{ divided("x") }});
    {% endcall %}
    let along = sum_along({{ total("products") }}, place, lane, subgroup_size);
    {% call sweep() %}
        let x = load_row_x(row, j, thread);
        let dy = load_row_dy(row, j, thread);
        store_row_dx(row, row_exists, j, thread, gradient(x, dy, norm, along));
    {% endcall %}

    {% endcall %}
}
