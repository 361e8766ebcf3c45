{#- Stores of the tensors with rows: `store_<name>` writes the Vec of step j, or the Vecs of two steps that share an
    access. Unlike loads, stores are guarded: they write nothing past the row, and nothing for a row that does not exist. -#}
{% from "lib/cost.wgsl" import tally with context %}
{% from "lib/looped.wgsl" import looped with context %}
{% from "lib/dtype.wgsl" import lanes, joins_words, in_pairs, row_start, shifted, word_type, per_word, shares_words, encoded with context %}
{% from "lib/direct.wgsl" import whole with context %}
{% for tensor in tensors if tensor.access == "read_write" and tensor.wide and tensor.batched %}
{% if shares_words(tensor) %}
// Rows, also of different workgroups, may share words. Each row clears and sets only its own bits, so neither their
// order nor the word's old value matters.
fn put_{{ tensor.name }}(at: u32, bits: u32, mask: u32) {
    if (mask == 0xffffffffu) {
        atomicStore(&{{ tensor.buffer }}[at], bits);
    } else if (mask != 0u) {
        atomicAnd(&{{ tensor.buffer }}[at], ~mask);
        atomicOr(&{{ tensor.buffer }}[at], bits & mask);
    }
}

{% endif %}
{% if in_pairs(tensor) %}
// Steps j and j + 1, for an even j.
fn store_{{ tensor.name }}(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec, next: Vec) {
    let at = {{ row_start(tensor) }} + j / 2u * THREADS + thread;
    if ({{ "row_exists" if whole else "row_exists && live(j, thread)" }}) {
        {{ tensor.buffer }}[at] = vec4({{ encoded(tensor.dtype, "value") }}, {{ encoded(tensor.dtype, "next") }});
        {{ tally("writes", "8u") }}
    }
}

{% else %}
{% if joins_words %}
// For rows that start in the middle of a word, their first column, as the upper half of a word.
var<workgroup> {{ tensor.name }}_edges: array<u32, {{ rows_per_workgroup * (2 if looped else 1) }}>;

// `edge` is the upper half of the row's last word if it belongs to the next row.
{% endif %}
fn store_{{ tensor.name }}(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec{{ ", edge: u32" if joins_words }}) {
    let at = {{ row_start(tensor) }} + access(j, thread);
{% if joins_words %}
    // If the row has only the upper half of a word, the row before stores it.
    let wanted = live(j, thread);
    if (row_exists && wanted.x) {
        let word = {{ encoded(tensor.dtype, "value") }};
        {{ tensor.buffer }}[at] = select((word & 0xffffu) | edge, word, wanted.y);
    }
    {{ tally("writes", "select(0u, live_count(j, thread), row_exists)") }}
{% elif not shifted %}
    if ({{ "row_exists" if whole else "row_exists && live(j, thread)" }}) {
        {{ tensor.buffer }}[at] = {{ encoded(tensor.dtype, "value") if lanes > 1 else "value" }};
        {{ tally("writes", lanes ~ "u") }}
    }
{% else %}
{% set words = per_word(tensor.dtype) | int %}
    let wanted = live(j, thread) & vec4(row_exists);
{% if words == 1 %}
    if (all(wanted)) {
{% for c in "xyzw" %}
        {{ tensor.buffer }}[4u * at + {{ loop.index0 }}u] = {{ word_type(tensor.dtype) }}(value.{{ c }});
{% endfor %}
    } else {
{% for c in "xyzw" %}
        if (wanted.{{ c }}) { {{ tensor.buffer }}[4u * at + {{ loop.index0 }}u] = {{ word_type(tensor.dtype) }}(value.{{ c }}); }
{% endfor %}
    }
{% else %}
    let bits = {{ encoded(tensor.dtype, "value") }};
{% if words == 4 %}
    put_{{ tensor.name }}(at, bits, dot(select(vec4(0u), vec4(0xffu, 0xff00u, 0xff0000u, 0xff000000u), wanted), vec4(1u)));
{% elif shares_words(tensor) %}
    let masks = select(vec4(0u), vec4(0xffffu, 0xffff0000u, 0xffffu, 0xffff0000u), wanted);
    put_{{ tensor.name }}(2u * at, bits.x, masks.x | masks.y);
    put_{{ tensor.name }}(2u * at + 1u, bits.y, masks.z | masks.w);
{% else %}
    // Rows consist of whole words, so either both halves exist or none.
    if (wanted.x) { {{ tensor.buffer }}[2u * at] = bits.x; }
    if (wanted.z) { {{ tensor.buffer }}[2u * at + 1u] = bits.y; }
{% endif %}
{% endif %}
    {{ tally("writes", "select(0u, live_count(j, thread), row_exists)") }}
{% endif %}
}

{% endif %}
{% endfor %}
