{#- The rows of qk_norm: the heads of all queries, then the heads of all keys. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% from "lib/qk_norm_access.wgsl" import by_kind, load_x with context %}
{% include "lib/op_row.wgsl" %}

struct Head {
    is_key: bool,
    number: u32,
    x: u32,  // the first element in q or k
    y: u32,  // the first element in yq or yk, and in their gradients
{% if op == "qk_norm_backward" %}
    dx: u32,  // the first element in dq or dk
{% endif %}
}

fn head_in(is_key: bool, token: u32, number: u32) -> Head {
{% if key %}
    let heads = select(q_heads, k_heads, is_key);
    let start = select(token * {{ q_stride }}u, token * {{ q_stride ~ "u + q_heads * dim" if qkv else k_stride ~ "u" }}, is_key);
{% else %}
    let heads = q_heads;
    let start = token * {{ q_stride }}u;
{% endif %}
{% if layout == "heads_first" %}
    let output = (token / tokens * heads + number) * tokens + token % tokens;
{% else %}
    let output = token * heads + number;
{% endif %}
    return Head(is_key, number, start + number * dim, output * dim{{ ", (token * heads + number) * dim" if op == "qk_norm_backward" }});
}

// The inverse of `head_of`.
fn row_of(is_key: bool, token: u32, number: u32) -> u32 {
{% if key %}
    return select(token * q_heads, params.batch * {{ tokens * q_heads }}u + token * k_heads, is_key) + number;
{% else %}
    return token * q_heads + number;
{% endif %}
}

fn head_of(row: u32) -> Head {
{% if key %}
    let queries = params.batch * {{ tokens * q_heads }}u;
    if (row >= queries) {
        return head_in(true, (row - queries) / k_heads, (row - queries) % k_heads);
    }
{% endif %}
    return head_in(false, row / q_heads, row % q_heads);
}

// The first element of a row's weight and bias.
fn parameter_of(head: Head) -> u32 {
    return {{ "head.number * dim" if weight_per_head else "0u" }};
}

fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    let head = head_of(row);
    let i = {{ lanes ~ "u * " if lanes > 1 }}inside(j, thread);
    var x: Vec;
{% macro load(kind) %}
        x = {{ load_x(kind, "i") }};
{% endmacro %}
{{ by_kind(load) }}
    return where_live(x, Vec(), j, thread);
}
