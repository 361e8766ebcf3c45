// /// webnorm
// summary = "Several invocations per row, which stays in registers: one read, one reduction, one write."
// differs = "Reads x once, up to four columns per access; one reduction joins maximum and sum."
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
//         ["cols <= 256", 4],
//         ["cols <= 1024", 16],
//         ["cols <= 4096", 64],
//         "min(256, max_invocations)",
//     ]],
//     ["itemsize == 2", [
//         ["cols <= 1024", 32],
//         ["cols <= 2048", 64],
//         ["cols <= 4096", 128],
//         ["cols <= 16384", "min(256, max_invocations)"],
//         "min(1024, max_invocations)",
//     ]],
//     ["cols <= 256", 32],
//     ["cols <= 1024", 128],
//     ["cols <= 2048", "min(256, max_invocations)"],
//     ["cols <= 32768", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [
//     ["software", [["cols <= 256", 4], 1]],
//     ["cols <= 512 and threads_per_row <= 32", 4],
//     1,
// ]
// subgroups = "has_subgroups"
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
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
{% from "lib/direct.wgsl" import total, where_live with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/softmax_parts.wgsl" import part_reduction with context %}
{% include "lib/softmax_row.wgsl" %}

{{ part_reduction() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% for j in range(steps) %}
    let z{{ j }} = load_row(row, {{ j }}u, thread);
{% endfor %}
    var most = z0;
{% for j in range(1, steps) %}
    most = max(most, z{{ j }});
{% endfor %}
    // If -inf masks all columns of an invocation, its maximum minus itself would be NaN.
    let largest = max(greatest(most), LOWEST);
{% for j in range(steps) %}
    let e{{ j }} = {{ where_live("exp(z" ~ j ~ " - largest)", "Vec()", j ~ "u") }};
{% endfor %}
    var sum = e0;
{% for j in range(1, steps) %}
    sum += e{{ j }};
{% endfor %}
    let whole = joined_parts(vec2(largest, {{ total("sum") }}), place, lane, subgroup_size);
{% if log %}
    let logarithm = logarithm_of(whole.y);
{% else %}
    // Each invocation rescales its part of the row.
    let scale = exp(largest - whole.x) * reciprocal_of(whole.y);
{% endif %}
{% for j in range(steps) %}
    store_row(row, row_exists, {{ j }}u, thread, {{ "z" ~ j ~ " - whole.x - logarithm" if log else "e" ~ j ~ " * scale" }});
{% endfor %}

    {% endcall %}
}
