{#- Reductions across the THREADS invocations of a row, any power of two, for any subgroup size from 4 to 128 (1 stands
    for no subgroups). With subgroups and one row per workgroup, "sum" and "max" work for any other number as well. All
    invocations get the same bits. Each reduction has its own workgroup memory, so that the next one needs no barrier
    before it: call each once per row. In loops over rows there are two sets of it, used in turn. An invocation that
    writes a set again has passed a barrier that all reach after reading it.

    If a row spans subgroups, `subgroup_size < THREADS` is uniform, so the branch may contain a barrier. -#}
{% from "lib/looped.wgsl" import looped with context %}
{% set smallest_subgroup = 4 if subgroups else 1 %}
{% macro merged(merge, first, second) -%}
{{ first ~ " + " ~ second if merge == "sum" else merge ~ "(" ~ first ~ ", " ~ second ~ ")" }}
{%- endmacro %}
{#- A butterfly over runs of `lanes` lanes. -#}
{% macro across_lanes(merge, lanes, limit) %}
{% for power in range(7) if 2 ** power < limit %}
{% set offset = 2 ** power %}
    if ({{ offset }}u < {{ lanes }}) {
        let other = subgroupShuffleXor(value, {{ offset }}u);
        value = {{ merged(merge, "value", "other") }};
    }
{% endfor %}
{% endmacro %}
{#- If the number of a row's invocations is not a power of two, its last subgroup may be incomplete, and a butterfly would
    read lanes that do not exist. -#}
{% macro uneven_reduction(merge, type, partials, set) %}
{% set across = {"sum": "subgroupAdd", "max": "subgroup_greatest"}[merge] %}
    value = {{ across }}(value);
    if (subgroup_size < THREADS) {
        if (lane == 0u) { {{ partials }}[{{ set }}place / subgroup_size] = value; }
        workgroupBarrier();
        value = {{ type }}();{{ "  // bits of floats that are not negative: none is below 0" if merge == "max" }}
        for (var i = lane; i < (THREADS - 1u) / subgroup_size + 1u; i += subgroup_size) {
            value = {{ merged(merge, "value", partials ~ "[" ~ set ~ "i]") }};
        }
        value = {{ across }}(value);
    }
{% endmacro %}
{#- The largest of the bits of floats that are not negative, computed with floats. With subgroupMax of u32, shaders for
    some row lengths gave NaN for a row's scale on one NVIDIA driver (580.159), for an unknown reason. max() of floats may
    drop NaN, so NaN is checked separately. -#}
{% macro subgroup_greatest() %}
fn subgroup_greatest(bits: u32) -> u32 {
    let infinity = 0x7f800000u;
    let has_nan = subgroupAny(bits > infinity);
    let greatest = bitcast<u32>(subgroupMax(bitcast<f32>(min(bits, infinity))));
    return select(greatest, 0x7fc00000u, has_nan);
}

{% endmacro %}
{#- Defines `fn name(own, place, lane, subgroup_size)`. `merge` is "sum", or a commutative function of two values.
    `block`: a power of two that divides the row's invocations; neighbours of that number are reduced, as often as you
    like. -#}
{% macro row_reduction(name, type, merge="sum", block=none) %}
{% set partials = name ~ "_partials" %}
{% set across = threads_per_row if block is none else block %}
{% set count = "THREADS" if block is none else block ~ "u" %}
{% set size = workgroup_size // smallest_subgroup %}
{% set set = "turn * " ~ size ~ "u + " if looped else "" %}
{% set uneven = subgroups and 1024 % across %}
{% if across > smallest_subgroup %}
var<workgroup> {{ partials }}: array<{{ type }}, {{ 2 * size if looped else size }}>;

{% endif %}
{% if merge == "max" and uneven %}
{{ subgroup_greatest() }}
{% endif %}
fn {{ name }}(own: {{ type }}, place: u32, lane: u32, subgroup_size: u32) -> {{ type }} {
    var value = own;
{% if uneven %}
{{ uneven_reduction(merge, type, partials, set) }}
{% elif subgroups %}
    {{ across_lanes(merge, "subgroup_size", across) }}
{% if across > smallest_subgroup %}
    if (subgroup_size < {{ count }}) {
{{ "        workgroupBarrier();  // after the reads of the last call" if block is not none }}
        if (lane == 0u) { {{ partials }}[{{ set }}place / subgroup_size] = value; }
        workgroupBarrier();
        let count = {{ count }} / subgroup_size;
        let first = place / {{ count }} * count;
        value = {{ partials }}[{{ set }}first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = {{ merged(merge, "value", partials ~ "[" ~ set ~ "first + i]") }};
        }
        let lanes = min(count, subgroup_size);
        {{ across_lanes(merge, "lanes", across // smallest_subgroup) | indent(4) }}
    }
{% endif %}
{% elif across > 1 %}
{% set levels = [across, across // 8, across // 64, across // 512] %}
    let first = place - place % {{ count }};
{{ "    workgroupBarrier();  // after the reads of the last call" if block is not none }}
    {{ partials }}[{{ set }}place] = value;
    workgroupBarrier();
{% for level in levels if level > 8 %}
    // {{ level }} partials become {{ level // 8 }}: an invocation writes only where it alone reads.
    if (place - first < {{ level // 8 }}u) {
{% for k in range(1, 8) %}
        value = {{ merged(merge, "value", partials ~ "[" ~ set ~ "place + " ~ k * (level // 8) ~ "u]") }};
{% endfor %}
        {{ partials }}[{{ set }}place] = value;
    }
    workgroupBarrier();
{% endfor %}
    value = {{ partials }}[{{ set }}first];
{% for k in range(1, levels | select("le", 8) | first) %}
    value = {{ merged(merge, "value", partials ~ "[" ~ set ~ "first + " ~ k ~ "u]") }};
{% endfor %}
{% endif %}
    return value;
}
{% endmacro %}
