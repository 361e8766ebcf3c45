// /// webnorm
// summary = "Several invocations per row, which stays in registers: one read, one reduction, one write."
// differs = "Reads x once, up to four columns per access; small rows share a workgroup."
// rung = 3
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// subgroups = [true, false]
// [default]
// rows_per_workgroup = [["software", [["cols > 256", 1], 4]], ["threads_per_row > 32", 1], 4]
// subgroups = "has_subgroups"
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
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

{% for j in range(steps) %}
    let x{{ j }} = load_row_x(row, {{ j }}u, thread);
{% endfor %}
{{ declare_sums() }}
{% for j in range(steps) %}
{{ add_terms("x" ~ j) }}
{% endfor %}
    let norm = row_norm(sum_terms({{ own_sums() }}, place, lane, subgroup_size));
{% for j in range(steps) %}
    store_row_y(row, row_exists, {{ j }}u, thread, {{ divided("x" ~ j) }});
{% endfor %}

    {% endcall %}
}
