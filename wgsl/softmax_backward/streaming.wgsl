// /// webnorm
// summary = "One workgroup per row of any length, whose y and dy it reads twice."
// differs = "No column stays in registers: a sweep for the sum, and one for the output."
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
//     ["cols <= 16384", "min(512, max_invocations)"],
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
// workgroup_count = "batch * queries"
// iterations = "24 + 2 * steps + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.batch * queries)" %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/sweep.wgsl" import sweep with context %}
{% include "lib/softmax_gradient_row.wgsl" %}

{{ row_reduction("sum_row", "f32") }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    var own = Vec();
    {% call sweep() %}
        own += summand(load_row_y(row, j, thread), load_row_dy(row, j, thread));
    {% endcall %}
    let sum = sum_row({{ total("own") }}, place, lane, subgroup_size);
    {% call sweep() %}
        store_row(row, row_exists, j, thread, load_row_y(row, j, thread), load_row_dy(row, j, thread), sum);
    {% endcall %}

    {% endcall %}
}
