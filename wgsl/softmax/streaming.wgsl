// /// webnorm
// summary = "One workgroup per row of any length, which it reads twice: a running maximum with its sum, and the output."
// differs = "No column stays in registers; the sum is rescaled whenever the maximum grows."
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
// workgroup_count = "batch * queries"
// iterations = "24 + 2 * steps + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.batch * queries)" %}
{% from "lib/direct.wgsl" import total, where_live with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/softmax_parts.wgsl" import part_reduction with context %}
{% from "lib/sweep.wgsl" import sweep with context %}
{% include "lib/softmax_row.wgsl" %}

{{ part_reduction() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // Each component has its own maximum, and its own sum of exp(z - maximum).
    var most = Vec(LOWEST);
    var sums = Vec();
    {% call sweep() %}
        let z = load_row(row, j, thread);
        let greater = max(most, z);
        sums = fma(sums, exp(most - greater), {{ where_live("exp(z - greater)", "Vec()", "j") }});
        most = greater;
    {% endcall %}
    let largest = greatest(most);
    let own = sums * exp(most - largest);
    let whole = joined_parts(vec2(largest, {{ total("own") }}), place, lane, subgroup_size);
{% if log %}
    let logarithm = logarithm_of(whole.y);
{% else %}
    let scale = reciprocal_of(whole.y);
{% endif %}
    {% call sweep() %}
        let z = load_row(row, j, thread);
        store_row(row, row_exists, j, thread, {{ "z - whole.x - logarithm" if log else "exp(z - whole.x) * scale" }});
    {% endcall %}

    {% endcall %}
}
