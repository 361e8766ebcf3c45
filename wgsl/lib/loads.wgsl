{#- Loads of the input tensors. `load_<name>` returns the Vec of step j of a row or a parameter. For prefetching there are
    two halves: `fetch_<name>` returns an access in its storage format, `<name>_of` a Vec of it.

    Loads have no branches around them, because a branch would keep them from overlapping. Instead the index is clamped,
    and values past the row are replaced by 0. -#}
{% from "lib/cost.wgsl" import tally with context %}
{% from "lib/dtype.wgsl" import storage, lanes, components, joins_words, in_pairs, row_start, shifted, word_type, per_word, decoded with context %}
{% from "lib/direct.wgsl" import whole, where_live with context %}
{#- The position of an access of step j in its row. -#}
{% macro inside(tensor) -%}
{{ "pair_inside" if in_pairs(tensor) else ("access" if whole else "inside") }}(j, thread)
{%- endmacro %}
{#- Text that converts an access to the Vec of step j. -#}
{% macro unpacked(tensor, raw) -%}
{{ decoded(tensor.dtype, "select(" ~ raw ~ ".xy, " ~ raw ~ ".zw, j % 2u == 1u)" if in_pairs(tensor) else raw) }}
{%- endmacro %}
{#- The end of a function that returns the Vec of step j from the access `raw`, or from text for it. -#}
{% macro return_step(tensor, access, plus_offset) %}
{% if whole and not plus_offset and unpacked(tensor, "raw") == "raw" %}
    return {{ access }};
{% else %}
    let raw = {{ access }};
    return {{ where_live(unpacked(tensor, "raw") ~ plus_offset, "Vec()", "j") }};
{% endif %}
{% endmacro %}
{% for tensor in tensors if tensor.access == "read" and tensor.wide %}
{% set plus_offset = (" - " ~ -weight_offset if weight_offset < 0.0 else " + " ~ weight_offset) if tensor.name == "weight" and weight_offset else "" %}
{% if tensor.batched %}
{% if (prefetch is defined and prefetch) or (parked is defined and parked) or (words is defined and words) %}
// An access in its storage format, and step j of it.
fn fetch_{{ tensor.name }}(row: u32, j: u32, thread: u32) -> {{ storage(tensor) }} {
    {{ tally("row_reads", "live_count(j, thread)" ~ (" + live_count(j + 1u, thread)" if in_pairs(tensor))) }}
    return {{ tensor.buffer }}[{{ row_start(tensor) }} + {{ inside(tensor) }}];
}

fn {{ tensor.name }}_of(raw: {{ storage(tensor) }}, j: u32, thread: u32) -> Vec {
    return {{ where_live(unpacked(tensor, "raw"), "Vec()", "j") }};
}

{% endif %}
fn load_{{ tensor.name }}(row: u32, j: u32, thread: u32) -> Vec {
    {{ tally("row_reads", "live_count(j, thread)") }}
{{ return_step(tensor, tensor.buffer ~ "[" ~ row_start(tensor) ~ " + " ~ inside(tensor) ~ "]", "") }}
}

{% elif shifted %}
{% if joins_words and (per_word(tensor.dtype) | int) == 2 %}
// If a row starts in the middle of a word, its Vecs span two words of a parameter.
fn load_{{ tensor.name }}(j: u32, thread: u32) -> Vec {
    {{ tally("parameter_reads", "live_count(j, thread)") }}
{% set at = tensor.base // 4 %}
    let word = {{ tensor.buffer }}[{{ at ~ "u + " if at }}inside(j, thread)];
    let before = {{ tensor.buffer }}[{{ at ~ "u + " if at }}max(inside(j, thread), 1u) - 1u];
    let value = {{ decoded(tensor.dtype, "select(word, (before >> 16u) | (word << 16u), row_shift == 1u)") }};
    return where_live(value{{ plus_offset }}, Vec(), j, thread);
}

{% else %}
fn {{ tensor.name }}_at(column: u32) -> f32 {
{% set words = per_word(tensor.dtype) | int %}
{% set at = tensor.base // (2 if word_type(tensor.dtype) == "f16" else 4) %}
    let word = {{ tensor.buffer }}[{{ at ~ "u + " if at }}column{{ " / 2u" if words == 2 }}];
{% if tensor.dtype == "bfloat16" %}
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, column % 2u == 1u));
{% elif words == 2 %}
    let pair = unpack2x16float(word);
    return select(pair.x, pair.y, column % 2u == 1u);
{% else %}
    return f32(word);
{% endif %}
}

fn load_{{ tensor.name }}(j: u32, thread: u32) -> Vec {
    {{ tally("parameter_reads", "live_count(j, thread)") }}
    let at = min(columns(j, thread), vec{{ lanes }}(COLS - 1u));
    let value = Vec({% for c in components %}{{ tensor.name }}_at(at.{{ c }}){{ ", " if not loop.last }}{% endfor %});
    return where_live(value{{ plus_offset }}, Vec(), j, thread);
}

{% endif %}
{% else %}
{% set size = 16 if in_pairs(tensor) else lanes * (4 if tensor.dtype == "float32" else 2) %}
{% set at = tensor.base // size ~ "u + " if tensor.base else "" %}
{% if (parameters_first is defined and parameters_first) or (parked_weight is defined and parked_weight) %}
fn fetch_{{ tensor.name }}(j: u32, thread: u32) -> {{ storage(tensor) }} {
    {{ tally("parameter_reads", "live_count(j, thread)" ~ (" + live_count(j + 1u, thread)" if in_pairs(tensor))) }}
    return {{ tensor.buffer }}[{{ at }}{{ inside(tensor) }}];
}

fn {{ tensor.name }}_of(raw: {{ storage(tensor) }}, j: u32, thread: u32) -> Vec {
    return {{ where_live(unpacked(tensor, "raw") ~ plus_offset, "Vec()", "j") }};
}

{% endif %}
fn load_{{ tensor.name }}(j: u32, thread: u32) -> Vec {
    {{ tally("parameter_reads", "live_count(j, thread)") }}
{{ return_step(tensor, tensor.buffer ~ "[" ~ at ~ inside(tensor) ~ "]", plus_offset) }}
}

{% endif %}
{% endfor %}
