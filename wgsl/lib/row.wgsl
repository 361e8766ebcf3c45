{#- A row as `threads_per_row` invocations see it: at step j, invocation `thread` holds a Vec of
    `vector_width` columns.

    A Vec of four is a chunk, one of two a word, aligned in memory. Where rows do not start on multiples of as
    many elements, a row's first and last Vec hold columns of its neighbours too: `row_shift` says how many, and
    which columns a Vec stands for depends on it. All tensors with rows have the same shift, since bindings start
    on multiples of four elements.

    Loads are never branched around, since a branch keeps them from overlapping: the index is clamped and
    what lies past the row is replaced by 0. Only stores are guarded. -#}
{% from "lib/cost.wgsl" import tally with context %}
{% from "lib/dtype.wgsl" import storage, lanes, chunked, paired, joins_words, looped, in_pairs, shifted, f16, chunk_type, word_type, per_word, shares_words, decoded, encoded with context %}
{% from "lib/sweep.wgsl" import unroll with context %}
{% set whole = not shifted and steps * (row_parts if row_parts is defined else 1) * threads_per_row * lanes == cols and steps % unroll == 0 %}
alias Vec = {{ "f32" if lanes == 1 else "vec" ~ lanes ~ "<f32>" }};
alias Live = {{ "vec" ~ lanes ~ "<bool>" if shifted else "bool" }};
{% set components = "xyzw"[:lanes] %}
{#- Where steps are written out one by one, j is a constant, and the compiler drops what it decides. -#}
{% set unrolled = scalars is defined %}
{% macro shortcut(condition, value) -%}
{% if unrolled and not whole %}
    if ({{ condition }}) { return {{ value }}; }
{% endif %}
{%- endmacro %}

const THREADS = {{ threads_per_row }}u;  // invocations per row
const STEPS = {{ steps }}u;  // Vecs per invocation
{% if not shifted %}
const ACCESSES = COLS{{ " / " ~ lanes ~ "u" if lanes > 1 }};  // Vecs per row
{% endif %}

{% if unrolled and not whole %}
const WHOLE_STEPS = {{ 2 * (cols // (threads_per_row * 8)) if paired else cols // (threads_per_row * lanes) }}u;  // those with no Vec past the row
{% endif %}

// Which of the row's Vecs the invocation has at step j.
fn access(j: u32, thread: u32) -> u32 {
{% if paired %}
    return 2u * (j / 2u * THREADS + thread) + j % 2u;
{% else %}
    return j * THREADS + thread;
{% endif %}
}

// The same; past the row's last Vec it is that one.
fn inside(j: u32, thread: u32) -> u32 {
{% if whole %}
    return access(j, thread);
{% else %}
{{ shortcut("j < WHOLE_STEPS", "access(j, thread)") }}
    return min(access(j, thread), {{ "(row_shift + COLS - 1u) / " ~ lanes ~ "u" if shifted else "ACCESSES - 1u" }});
{% endif %}
}
{% if paired %}

// Where the access lies that steps j and j + 1 share.
fn pair_inside(j: u32, thread: u32) -> u32 {
    return inside(j, thread) / 2u;
}
{% endif %}

{% if shifted %}
// The columns of step j; those before the row's first wrap to numbers past its last.
fn columns(j: u32, thread: u32) -> vec{{ lanes }}<u32> {
    return vec{{ lanes }}({{ lanes }}u * access(j, thread) - row_shift) + vec{{ lanes }}({% for c in components %}{{ loop.index0 }}u{{ ", " if not loop.last }}{% endfor %});
}

// Which of the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
{{ shortcut("0u < j && j < WHOLE_STEPS", "Live(true)") }}
    return columns(j, thread) < vec{{ lanes }}(COLS);
}
{% else %}
// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
{{ shortcut("j < WHOLE_STEPS", "true") }}
    return access(j, thread) < ACCESSES;
}
{% endif %}

// `value` in the columns that exist, `otherwise` in those that do not.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return {{ "value" if whole else "select(otherwise, value, live(j, thread))" }};
}
{% if count_cost %}

fn live_count(j: u32, thread: u32) -> u32 {
{% if shifted %}
    return dot(select(vec{{ lanes }}(0u), vec{{ lanes }}(1u), live(j, thread)), vec{{ lanes }}(1u));
{% else %}
    return select(0u, {{ lanes }}u, live(j, thread));
{% endif %}
}
{% endif %}

{% include "lib/encode.wgsl" %}
{#- Elements of a tensor's array that lie in one access. -#}
{% macro per_access(tensor) -%}{{ 8 if in_pairs(tensor) else lanes }}{%- endmacro %}
{% macro row_start(tensor) -%}
{% set elements = per_access(tensor) -%}
{% if elements == "1" -%}
params.{{ tensor.buffer }}_start + row * COLS
{%- else -%}
(params.{{ tensor.buffer }}_start + row * COLS) / {{ elements }}u
{%- endif %}
{%- endmacro %}
{#- Where an access of step j lies in its row. -#}
{% macro inside(tensor) -%}
{{ "pair_inside(j, thread)" if in_pairs(tensor) else "inside(j, thread)" }}
{%- endmacro %}
{#- Text that turns an access into the Vec of step j. -#}
{% macro unpacked(tensor, raw) -%}
{{ decoded(tensor.dtype, "select(" ~ raw ~ ".xy, " ~ raw ~ ".zw, j % 2u == 1u)" if in_pairs(tensor) else raw) }}
{%- endmacro %}
{% for tensor in tensors if tensor.access == "read" and tensor.wide %}
{% set plus_one = " + 1.0" if tensor.name == "weight" and zero_centered_weight %}
{% if tensor.per_row %}
{% if prefetch is defined and prefetch %}
// An access as it lies in memory, and step j of it.
fn fetch_{{ tensor.name }}(row: u32, j: u32, thread: u32) -> {{ storage(tensor) }} {
    {{ tally("row_reads", "live_count(j, thread)" ~ (" + live_count(j + 1u, thread)" if in_pairs(tensor))) }}
    return {{ tensor.buffer }}[{{ row_start(tensor) }} + {{ inside(tensor) }}];
}

fn {{ tensor.name }}_of(raw: {{ storage(tensor) }}, j: u32, thread: u32) -> Vec {
    return where_live({{ unpacked(tensor, "raw") }}, Vec(), j, thread);
}

{% endif %}
fn load_{{ tensor.name }}(row: u32, j: u32, thread: u32) -> Vec {
    {{ tally("row_reads", "live_count(j, thread)") }}
    let raw = {{ tensor.buffer }}[{{ row_start(tensor) }} + {{ inside(tensor) }}];
    return where_live({{ unpacked(tensor, "raw") }}, Vec(), j, thread);
}

{% elif shifted %}
{% if joins_words and (per_word(tensor.dtype) | int) == 2 %}
// Where a row starts in the middle of a word, its Vecs lie across two words of a parameter.
fn load_{{ tensor.name }}(j: u32, thread: u32) -> Vec {
    {{ tally("parameter_reads", "live_count(j, thread)") }}
{% set at = tensor.base // 4 %}
    let word = {{ tensor.buffer }}[{{ at ~ "u + " if at }}inside(j, thread)];
    let before = {{ tensor.buffer }}[{{ at ~ "u + " if at }}max(inside(j, thread), 1u) - 1u];
    let value = {{ decoded(tensor.dtype, "select(word, (before >> 16u) | (word << 16u), row_shift == 1u)") }};
    return where_live(value{{ plus_one }}, Vec(), j, thread);
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
    return where_live(value{{ plus_one }}, Vec(), j, thread);
}

{% endif %}
{% else %}
{% set size = 16 if in_pairs(tensor) else lanes * (4 if tensor.dtype == "float32" else 2) %}
{% set at = tensor.base // size ~ "u + " if tensor.base else "" %}
{% if parameters_first is defined and parameters_first %}
fn fetch_{{ tensor.name }}(j: u32, thread: u32) -> {{ storage(tensor) }} {
    {{ tally("parameter_reads", "live_count(j, thread)" ~ (" + live_count(j + 1u, thread)" if in_pairs(tensor))) }}
    return {{ tensor.buffer }}[{{ at }}{{ inside(tensor) }}];
}

fn {{ tensor.name }}_of(raw: {{ storage(tensor) }}, j: u32, thread: u32) -> Vec {
    return where_live({{ unpacked(tensor, "raw") }}{{ plus_one }}, Vec(), j, thread);
}

{% endif %}
fn load_{{ tensor.name }}(j: u32, thread: u32) -> Vec {
    {{ tally("parameter_reads", "live_count(j, thread)") }}
    let raw = {{ tensor.buffer }}[{{ at }}{{ inside(tensor) }}];
    return where_live({{ unpacked(tensor, "raw") }}{{ plus_one }}, Vec(), j, thread);
}

{% endif %}
{% endfor %}
{% for tensor in tensors if tensor.access == "read_write" and tensor.wide and tensor.per_row %}
{% if shares_words(tensor) %}
// Rows share words, and so may workgroups. Each clears and sets its own bits only, so that the order of
// two of them does not matter, nor what the word held before.
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
// The first columns of a workgroup's rows that start in the middle of a word, as the upper half of one.
var<workgroup> {{ tensor.name }}_edges: array<u32, {{ rows_per_workgroup * (2 if looped else 1) }}>;

// `edge` is the upper half of the row's last word where that belongs to the next row.
{% endif %}
fn store_{{ tensor.name }}(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec{{ ", edge: u32" if joins_words }}) {
    let at = {{ row_start(tensor) }} + access(j, thread);
{% if joins_words %}
    // A word whose upper half alone is the row's own is stored with the row before.
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
    // Rows are whole words: both halves of one exist, or none.
    if (wanted.x) { {{ tensor.buffer }}[2u * at] = bits.x; }
    if (wanted.z) { {{ tensor.buffer }}[2u * at + 1u] = bits.y; }
{% endif %}
{% endif %}
    {{ tally("writes", "select(0u, live_count(j, thread), row_exists)") }}
{% endif %}
}

{% endif %}
{% endfor %}
{% if has_residual %}
// h = x + residual, as it is stored: what is normalised is what the next layer is given.
fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    let h = load_x(row, j, thread) + load_residual(row, j, thread){{ " + load_residual_bias(j, thread)" if has_residual_bias }};
    return {{ "round_float16(h)" if dtype == "float16" else (decoded(dtype, encoded(dtype, "h")) if lanes > 1 else "h") }};
}

{% else %}
fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    return load_x(row, j, thread);
}

{% endif %}
{% if uses_pivot is defined and uses_pivot %}
// A value of the row. Sums of differences from it stay small where the row is far from 0, so that adding
// many terms one after another costs few digits (Chan, Golub and LeVeque 1983, shifted data).
fn pivot_of(row: u32) -> f32 {
    let first = load_input(row, 0u, 0u);
    return first{{ "[row_shift]" if shifted else (".x" if lanes > 1) }};
}

{% endif %}
// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return {{ {4: "(value.x + value.y) + (value.z + value.w)", 2: "value.x + value.y", 1: "value"}[lanes] }};
}
