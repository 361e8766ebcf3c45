// /// webnorm
// summary = "Splits a group into parts over many workgroups; a second dispatch joins their statistics and normalizes."
// differs = "For few long groups: one workgroup per group, as in registers, would leave most of the adapter idle. Reads x twice, the second time from cache if x fits."
// preference = "0 if software else (3 if cols * itemsize > 81920 or (batch * groups < 128 and cols >= 16384) else 0)"
// layout = "row_in_parts"
// [tune]
// vector_width = [4, 8, 1]
// subgroups = [true, false]
// backwards = [false, true]
// [default]
// vector_width = [
//     ["cols % 4 > 0 or not (is_layout_channels_first or channels // groups % 4 == 0)", 1],
//     4,
// ]
// backwards = "not software"
// threads_per_row = "32 if software else min(128, max_invocations)"
// part_steps = [["software", [["span <= 256", 2], ["span <= 1024", 8], 16]], 8]
// [derive]
// has_mean = 1
// # Whether all elements of a part have the same channel.
// one_channel = "is_layout_channels_first and spatial % (threads_per_row * part_steps * min(vector_width, 4)) == 0"
// [[require]]
// rule = "vector_width == 1 or (cols % 4 == 0 and (is_layout_channels_first or channels // groups % 4 == 0))"
// why = "four elements per access need groups that begin at multiples of four elements"
// [[require]]
// rule = "vector_width < 8 or (is_layout_channels_first and cols % 8 == 0 and part_steps % 2 == 0)"
// why = "vector_width 8 needs channels first, groups of a multiple of eight elements, and even part_steps"
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

{% macro load_part() %}
{% for j in range(0, steps, 2 if vector_width == 8 else 1) %}
{% if vector_width == 8 %}
    let pair{{ j }} = load_pair(row, first + {{ j }}u, thread);
    let h{{ j }} = pair{{ j }}[0];
    let h{{ j + 1 }} = pair{{ j }}[1];
{% else %}
    let h{{ j }} = load_row(row, first + {{ j }}u, thread);
{% endif %}
{% endfor %}
{% endmacro %}
@compute @workgroup_size({{ workgroup_size }})
fn measure(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_part() %}

{{ load_part() }}
{{ part_moments("h") }}
{{ store_moments(moments) }}
    {% endcall %}
}

@compute @workgroup_size({{ workgroup_size }})
fn normalize_rows(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_part(backwards) %}

{{ load_part() }}
{{ joined_parts(moments) }}
{% if one_channel %}
    let channel = channel_of(row, part * PART_COLUMNS);
    let gain = rstd{{ " * load_weight(channel)" if has_weight }};
    let offset = {{ "load_bias(channel)" if has_bias else "0.0" }} - low * gain;
{% endif %}
{% for j in range(steps) %}
{% if one_channel %}
    let z{{ j }} = (h{{ j }} - mean) * gain + offset;
{% else %}
    let z{{ j }} = with_parameters(row, first + {{ j }}u, thread, {{ normalized("h" ~ j) }});
{% endif %}
{% endfor %}
{% for j in range(0, steps, 2 if vector_width == 8 else 1) %}
{% if vector_width == 8 %}
    store_pair(row, row_exists, first + {{ j }}u, thread, pair{{ j }}, z{{ j }}, z{{ j + 1 }});
{% else %}
    store_step(row, row_exists, first + {{ j }}u, thread, h{{ j }}, z{{ j }});
{% endif %}
{% endfor %}

    {% endcall %}
}
