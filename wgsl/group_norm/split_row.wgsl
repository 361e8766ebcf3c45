// /// webnorm
// summary = "Splits a group into parts over many workgroups; a second dispatch joins their statistics and normalizes."
// differs = "For few long groups: one workgroup per group, as in registers, would leave most of the adapter idle. Reads x twice, the second time from cache if x fits."
// preference = "3 if not software and batch * groups < 1024 and cols >= 16384 else 0"
// layout = "row_in_parts"
// [tune]
// subgroups = [true, false]
// [default]
// part_steps = [
//     ["software", [["span <= 256", 2], ["span <= 1024", 8], 16]],
//     ["batch * groups * cols >= 33554432", 16],
//     ["batch * groups * cols >= 16777216", 8],
//     4,
// ]
// [derive]
// has_mean = 1
// vector_width = "4 if cols % 4 == 0 and (is_layout_channels_first or channels // groups % 4 == 0) else 1"
// [[scratch]]
// name = "parts"
// words = "3 * groups * row_parts"
// [[pass]]
// entry_point = "measure"
// workgroup_size = "workgroup_size"
// workgroup_count = "batch * groups * row_parts"
// iterations = "4 + 3 * (threads_per_row // 16)"
// bindings = ["x", "residual", "parts"]
// [[pass]]
// entry_point = "normalize_rows"
// workgroup_size = "workgroup_size"
// workgroup_count = "batch * groups * row_parts"
// iterations = "4 + 2 * ceil_div(row_parts, threads_per_row) + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "max(steps, ceil_div(row_parts, threads_per_row))"
// ///

// There is no barrier between workgroups, so they exchange data through memory and a second dispatch.
{% set row_elements, row_count = true, "(params.batch * groups)" %}
{% set vector_tensors = ["x", "residual", "y", "h"] %}
{% from "lib/split.wgsl" import each_part, part_functions, part_reductions, joining_reductions, part_moments, store_moments, joined_parts, moments with context %}
{% from "lib/moments.wgsl" import normalized with context %}
{% include "lib/group_norm_row.wgsl" %}

{{ part_functions() }}
{{ part_reductions() }}

{{ joining_reductions() }}

@compute @workgroup_size({{ workgroup_size }})
fn measure(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_part() %}

{% for j in range(steps) %}
    let h{{ j }} = load_row(row, first + {{ j }}u, thread);
{% endfor %}
{{ part_moments("h") }}
{{ store_moments(moments) }}
    {% endcall %}
}

@compute @workgroup_size({{ workgroup_size }})
fn normalize_rows(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_part() %}

{% for j in range(steps) %}
    let h{{ j }} = load_row(row, first + {{ j }}u, thread);
{% endfor %}
{{ joined_parts(moments) }}
{% for j in range(steps) %}
    store_row(row, row_exists, first + {{ j }}u, thread, h{{ j }}, {{ normalized("h" ~ j) }});
{% endfor %}

    {% endcall %}
}
