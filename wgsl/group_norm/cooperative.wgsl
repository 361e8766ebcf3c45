// /// webnorm
// summary = "Splits a group into parts over many workgroups, which exchange their statistics while the parts stay in registers."
// differs = "Reads x once, where split_row reads it twice: in one dispatch, workgroups wait for each other, and compute what others leave out."
// layout = "row_in_parts"
// [tune]
// vector_width = [4, 8, 1]
// words = [false, true]
// tries = [1024, 4096, 256, 4]
// subgroups = [true, false]
// [default]
// vector_width = [
//     ["cols % 4 > 0 or not (is_layout_channels_first or channels // groups % 4 == 0)", 1],
//     4,
// ]
// threads_per_row = [
//     ["software", [["span <= 65536", 32], 256]],
//     ["span <= 524288", "min(256, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// part_steps = [["software", [["span <= 256", 2], ["span <= 1024", 8], 16]], ["span <= 524288", 8], 16]
// tries = "4 if software else 1024"
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
// [[require]]
// rule = "not words or (vector_width == 8 and itemsize == 2 and not has_residual)"
// why = "words need vector_width 8, float16 or bfloat16, and no residual"
// [[require]]
// rule = "row_parts <= 64"
// why = "more than 64 parts of a group are too many to wait for"
// [[scratch]]
// name = "parts"
// words = "3 * groups * row_parts"
// [[pass]]
// entry_point = "clear_parts"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(3 * batch * groups * row_parts, workgroup_size)"
// bindings = ["parts"]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "batch * groups * row_parts"
// iterations = "(row_parts + 1) * (2 + ceil_div(row_parts, threads_per_row) * (1 + tries) + row_parts + 2 * (threads_per_row // 16)) + 2 * row_parts"
// [accuracy]
// serial_terms = "max(steps, row_parts)"
// ///
{% set row_elements, row_count = true, "(params.batch * groups)" %}
{% set vector_tensors, atomic_scratch = ["x", "residual", "y", "h"], ["parts"] %}
{% from "lib/split.wgsl" import each_part, part_functions, part_reductions with context %}
{% from "lib/cooperative.wgsl" import cooperative_functions, shared_moments, joined_words with context %}
{% from "lib/moments.wgsl" import normalized with context %}
{% include "lib/group_norm_row.wgsl" %}

{{ part_functions() }}
{{ part_reductions() }}

{{ cooperative_functions() }}
{% set pairs = vector_width == 8 %}
{#- With `words`, elements stay packed in registers as they are in memory. -#}
{% macro unpacked() %}
{% for j in range(steps if words else 0) %}
    let h{{ j }} = unpack8_x(raw{{ j - j % 2 }})[{{ j % 2 }}];
{% endfor %}
{% endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_part() %}

{% if one_channel %}
    let channel = channel_of(row, part * PART_COLUMNS);
{% if has_weight %}
    let weight = load_weight(channel);
{% endif %}
{% if has_bias %}
    let bias = load_bias(channel);
{% endif %}
{% endif %}
{% for j in range(0, steps, 2 if words else 1) %}
    var {{ "raw" ~ j ~ " = vec4<u32>()" if words else "h" ~ j ~ " = Vec()" }};
{% endfor %}
{% call shared_moments("h", unpacked()) %}
{% for j in range(0, steps, 2 if pairs else 1) %}
{% if words %}
    raw{{ j }} = raw8_x(place_of(row, 8u * pair_inside(first + {{ j }}u, thread)));
{% elif pairs %}
    let pair{{ j }} = load_pair(row, first + {{ j }}u, thread);
    h{{ j }} = pair{{ j }}[0];
    h{{ j + 1 }} = pair{{ j }}[1];
{% else %}
    h{{ j }} = load_row(row, first + {{ j }}u, thread);
{% endif %}
{% endfor %}
{% endcall %}
{{ joined_words() }}
{{ unpacked() }}
{% if one_channel %}
    let gain = rstd{{ " * weight" if has_weight }};
    let offset = {{ "bias" if has_bias else "0.0" }} - low * gain;
{% endif %}
{% for j in range(steps) %}
{% if one_channel %}
    let z{{ j }} = (h{{ j }} - mean) * gain + offset;
{% else %}
    let z{{ j }} = with_parameters(row, first + {{ j }}u, thread, {{ normalized("h" ~ j) }});
{% endif %}
{% endfor %}
{% for j in range(0, steps, 2 if pairs else 1) %}
{% if pairs %}
    store_pair(row, row_exists, first + {{ j }}u, thread, mat2x4<f32>(h{{ j }}, h{{ j + 1 }}), z{{ j }}, z{{ j + 1 }});
{% else %}
    store_step(row, row_exists, first + {{ j }}u, thread, h{{ j }}, z{{ j }});
{% endif %}
{% endfor %}

    {% endcall %}
}
