{#- The distribution of a row over `threads_per_row` invocations: at step j, invocation `thread` has a Vec of
    `vector_width` columns.

    A Vec of four is a chunk and a Vec of two is a word, aligned in memory. If rows do not start at multiples of that
    many elements, a row's first and last Vec also contain columns of its neighbours. `row_shift` is their number, and
    the columns of each Vec depend on it. All tensors with rows have the same shift, because bindings start at multiples
    of four elements. -#}
{% from "lib/dtype.wgsl" import lanes, components, paired, shifted, last_access with context %}
{% from "lib/direct.wgsl" import whole with context %}
alias Vec = {{ "f32" if lanes == 1 else "vec" ~ lanes ~ "<f32>" }};
alias Live = {{ "vec" ~ lanes ~ "<bool>" if shifted else "bool" }};
{#- In unrolled steps j is a constant, and the compiler removes the conditions on it. -#}
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

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
{% if paired %}
    return 2u * (j / 2u * THREADS + thread) + j % 2u;
{% else %}
    return j * THREADS + thread;
{% endif %}
}

// The number of the invocation's Vec at step j, at most the number of the row's last Vec.
fn inside(j: u32, thread: u32) -> u32 {
{% if whole %}
    return access(j, thread);
{% else %}
{{ shortcut("j < WHOLE_STEPS", "access(j, thread)") }}
    return min(access(j, thread), {{ last_access }});
{% endif %}
}
{% if paired %}

// The position of the access that steps j and j + 1 share.
fn pair_inside(j: u32, thread: u32) -> u32 {
    return {{ "access" if whole else "inside" }}(j, thread) / 2u;
}
{% endif %}

{% if shifted %}
// The columns of step j; columns before the row's first wrap to numbers past its last.
fn columns(j: u32, thread: u32) -> vec{{ lanes }}<u32> {
    return vec{{ lanes }}({{ lanes }}u * access(j, thread) - row_shift) + vec{{ lanes }}({% for c in components %}{{ loop.index0 }}u{{ ", " if not loop.last }}{% endfor %});
}

// For each of the invocation's columns at step j, whether it exists.
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

{% if row_parts is not defined %}
// The number of the invocation's columns.
fn own_columns(thread: u32) -> f32 {
{% if whole %}
    return {{ steps * lanes }}.0;
{% elif paired %}
    return f32(8u * ((COLS / 8u + THREADS - 1u - thread) / THREADS));
{% else %}
    let last = {{ last_access }};
    let columns = {{ lanes ~ "u * " if lanes > 1 }}((last + THREADS - thread) / THREADS);
{% if shifted %}
    let before = select(0u, row_shift, thread == 0u);
    return f32(columns - before - select(0u, {{ lanes }}u * (last + 1u) - row_shift - COLS, thread == last % THREADS));
{% else %}
    return f32(columns);
{% endif %}
{% endif %}
}

{% endif %}
// `value` in columns that exist, `otherwise` in the others.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return {{ "value" if whole else "select(otherwise, value, live(j, thread))" }};
}
{% if tracing %}

// The first column of step j, traced_nowhere if none exists.
fn traced_column(j: u32, thread: u32) -> u32 {
    return select(traced_nowhere, {{ lanes }}u * access(j, thread){{ " - row_shift" if shifted }}, {{ "any(live(j, thread))" if shifted else "live(j, thread)" }});
}
{% endif %}
{% if count_cost %}

fn live_count(j: u32, thread: u32) -> u32 {
{% if shifted %}
    return dot(select(vec{{ lanes }}(0u), vec{{ lanes }}(1u), live(j, thread)), vec{{ lanes }}(1u));
{% else %}
    return select(0u, {{ lanes }}u, live(j, thread));
{% endif %}
}
{% endif %}
