{#- A row as `threads_per_row` invocations see it: at step j, invocation `thread` holds a Vec of
    `vector_width` columns.

    Where rows start on multiples of four (access_width 4), a Vec is four neighbouring columns and one
    16-byte access. Where they do not, no vec4 of the buffer lies on a row's start, so a Vec takes four
    scalars a stride of THREADS apart: still one run of memory per access across the invocations.

    Loads are never branched around, since a branch keeps them from overlapping: the index is clamped and
    what lies past the row is replaced by 0. Only stores are guarded. -#}
{% from "lib/cost.wgsl" import tally with context %}
{% set strided = vector_width == 4 and access_width == 1 %}
{% from "lib/sweep.wgsl" import unroll with context %}
{% set whole = cols % (threads_per_row * vector_width) == 0 and steps % unroll == 0 %}
{% set per_access = vector_width if not strided else 1 %}
alias Vec = {{ "vec4<f32>" if vector_width == 4 else "f32" }};
alias Live = {{ "vec4<bool>" if strided else "bool" }};

const THREADS = {{ threads_per_row }}u;  // invocations per row
const STEPS = {{ steps }}u;  // Vecs per invocation
{% if per_access == 4 %}
const ACCESSES = COLS / 4u;  // Vecs per row
{% else %}
const ACCESSES = COLS;
{% endif %}

{% if strided %}
fn columns(j: u32, thread: u32) -> vec4<u32> {
    return (vec4(4u * j) + vec4(0u, 1u, 2u, 3u)) * THREADS + thread;
}

// Which of the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return columns(j, thread) < vec4(COLS);
}
{% else %}
fn columns(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return columns(j, thread) < ACCESSES;
}
{% endif %}

// `value` in the columns that exist, `otherwise` in those that do not.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return {{ "value" if whole else "select(otherwise, value, live(j, thread))" }};
}
{% if count_cost %}

fn live_count(j: u32, thread: u32) -> u32 {
{% if strided %}
    return dot(select(vec4(0u), vec4(1u), live(j, thread)), vec4(1u));
{% else %}
    return select(0u, {{ vector_width }}u, live(j, thread));
{% endif %}
}
{% endif %}

fn row_start(row: u32) -> u32 {
    return (params.start + row * COLS){{ " / 4u" if per_access == 4 }};
}

{% if uses_pivot is defined %}
// A value of the row. Sums of differences from it stay small where the row is far from 0, so that adding
// many terms one after another costs few digits (Chan, Golub and LeVeque 1983, shifted data).
fn pivot_x(row: u32) -> f32 {
    {{ tally("x_reads", "1u") }}
    return x[row_start(row)]{{ ".x" if per_access == 4 }};
}

{% endif %}
{% for binding in bindings if binding.access == "read" %}
fn load_{{ binding.name }}({{ "row: u32, " if binding.per_row }}j: u32, thread: u32) -> Vec {
    {{ tally("x_reads" if binding.per_row else "parameter_reads", "live_count(j, thread)") }}
    let at = {{ "columns(j, thread)" if whole else "min(columns(j, thread), " ~ ("vec4(ACCESSES - 1u))" if strided else "ACCESSES - 1u)") }};
{% set start = "start + " if binding.per_row else "" %}
{% if binding.per_row %}
    let start = row_start(row);
{% endif %}
{% if strided %}
    let value = Vec({% for c in "xyzw" %}{{ binding.name }}[{{ start }}at.{{ c }}]{{ ", " if not loop.last }}{% endfor %});
{% else %}
    let value = {{ binding.name }}[{{ start }}at];
{% endif %}
    return where_live(value, Vec(), j, thread);
}

{% endfor %}
fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = columns(j, thread);
    let start = row_start(row);
    let wanted = {{ ("vec4(row_exists)" if strided else "row_exists") if whole else ("live(j, thread) & " ~ ("vec4(row_exists)" if strided else "row_exists")) }};
{% if strided %}
{% for c in "xyzw" %}
    if (wanted.{{ c }}) { y[start + at.{{ c }}] = value.{{ c }}; }
{% endfor %}
    {{ tally("writes", "select(0u, live_count(j, thread), row_exists)") }}
{% else %}
    if (wanted) {
        y[start + at] = value;
        {{ tally("writes", vector_width ~ "u") }}
    }
{% endif %}
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return {{ "(value.x + value.y) + (value.z + value.w)" if vector_width == 4 else "value" }};
}
