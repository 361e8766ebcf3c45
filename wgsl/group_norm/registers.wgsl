// /// webnorm
// summary = "A group's channels stay in registers: one read, exact sweeps over registers, one write."
// differs = "Reads x once, up to eight elements per access; small groups share a workgroup."
// rung = 2
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
// vector_width = [4, 8, 1]
// words = [false, true]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software", [["cols <= 256", 4], ["cols <= 1024", 16], ["cols <= 2048", 32], ["cols <= 4096", 64], ["cols <= 16384", 256], 512]],
//     ["itemsize == 2", [
//         ["cols <= 512", 32],
//         ["cols <= 1024", 64],
//         ["cols <= 2560", 128],
//         ["cols <= 12288", "min(256, max_invocations)"],
//         ["cols <= 24576", "min(512, max_invocations)"],
//         "min(1024, max_invocations)",
//     ]],
//     ["cols <= 256", 32],
//     ["cols <= 1024", 128],
//     ["cols <= 2048", 256],
//     ["cols <= 16384", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// words = "is_layout_channels_first and itemsize == 2 and cols % 8 == 0 and cols > 16384 and not has_residual and not software"
// vector_width = [
//     ["cols % 4 > 0 or not (is_layout_channels_first or channels // groups % 4 == 0)", 1],
//     ["itemsize == 2 and is_layout_channels_first and cols % 8 == 0", 8],
//     4,
// ]
// rows_per_workgroup = [["software", [["span > 256", 1], 4]], ["threads_per_row > 32", 1], 4]
// subgroups = "has_subgroups"
// [derive]
// has_mean = 1
// packed = 0
// [[require]]
// rule = "vector_width == 1 or (cols % 4 == 0 and (is_layout_channels_first or channels // groups % 4 == 0))"
// why = "four elements per access need groups that begin at multiples of four elements"
// [[require]]
// rule = "vector_width < 8 or (is_layout_channels_first and cols % 8 == 0)"
// why = "vector_width 8 needs channels first and groups of a multiple of eight elements"
// [[require]]
// rule = "not words or (vector_width == 8 and itemsize == 2 and not has_residual)"
// why = "words need vector_width 8, float16 or bfloat16, and no residual"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "threads_per_row that is not a power of two needs subgroups and one row per workgroup"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * groups, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.batch * groups)" %}
{% set vector_tensors = ["x", "residual", "y", "h"] %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/group_norm_row.wgsl" %}

{{ moment_reductions() }}
{% set pairs = vector_width == 8 %}
{#- With `words`, elements stay packed in registers as they are in memory, and are unpacked for each sweep. -#}
{% macro held(j) -%}
{{ "unpack8_x(raw" ~ (j - j % 2) ~ ")[" ~ j % 2 ~ "]" if words else "h" ~ j }}
{%- endmacro %}
{% set kept = 0 if words else steps %}
{% macro z(j) -%}
with_parameters(row, {{ j }}u, thread, {{ held_normalized(j, kept, held) }})
{%- endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% for j in range(0, steps, 2 if pairs else 1) %}
{% if words %}
    let raw{{ j }} = raw8_x(place_of(row, 8u * pair_inside({{ j }}u, thread)));
{% elif pairs %}
    let pair{{ j }} = load_pair(row, {{ j }}u, thread);
    let h{{ j }} = pair{{ j }}[0];
    let h{{ j + 1 }} = pair{{ j }}[1];
{% else %}
    let h{{ j }} = load_row(row, {{ j }}u, thread);
{% endif %}
{% endfor %}
{{ held_moments(held, held, kept, "pivot_of(row)") }}
{{ held_scale(kept) }}
{% for j in range(0, steps, 2 if pairs else 1) %}
{% if pairs %}
    store_pair(row, row_exists, {{ j }}u, thread, {{ "mat2x4<f32>()" if words else "pair" ~ j }}, {{ z(j) }}, {{ z(j + 1) }});
{% else %}
    store_step(row, row_exists, {{ j }}u, thread, h{{ j }}, {{ z(j) }});
{% endif %}
{% endfor %}

    {% endcall %}
}
