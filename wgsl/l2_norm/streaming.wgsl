// /// webnorm
// summary = "One workgroup per row of any length, which it reads twice."
// differs = "No column stays in registers: a sweep for the norm, and one for the output."
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
// iterations = "24 + 2 * steps + 2 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements = true %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/row_norm.wgsl" import norm_functions, declare_sums, add_terms, own_sums, divided with context %}
{% from "lib/sweep.wgsl" import sweep with context %}
{% include "lib/plain_rows.wgsl" %}

{{ norm_functions() }}

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
    {% call sweep() %}
        let x = load_row_x(row, j, thread);
        store_row_y(row, row_exists, j, thread, {{ divided("x") }});
    {% endcall %}

    {% endcall %}
}
