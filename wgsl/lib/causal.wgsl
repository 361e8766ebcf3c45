{#- The causal mask of a matrix (queries, cols), whose row r is query r % queries. `seen_access(row, j, thread)` is the
    number of the invocation's Vec at step j, or of the row's last Vec with a column that the mask leaves. So columns
    that it hides are not read. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% if causal %}
// The number of columns that the mask leaves, which are the row's first.
fn seen_columns(row: u32) -> u32 {
{% if causal == "lower_right" and queries > cols %}
    return max(row % queries + {{ cols + 1 }}u, queries) - queries;
{% elif causal == "lower_right" %}
    return row % queries + {{ cols + 1 - queries }}u;
{% else %}
    return min(row % queries + 1u, COLS);
{% endif %}
}

// `value` in the columns that the mask leaves, `otherwise` in the others.
fn where_seen(value: Vec, otherwise: Vec, row: u32, j: u32, thread: u32) -> Vec {
    let e = {{ lanes ~ "u * " if lanes > 1 }}access(j, thread);
    return select(otherwise, value, {{ "vec4(e) + vec4(0u, 1u, 2u, 3u) < vec4(seen_columns(row))" if lanes == 4 else "e < seen_columns(row)" }});
}

fn seen_access(row: u32, j: u32, thread: u32) -> u32 {
    return min(access(j, thread), (max(seen_columns(row), 1u) - 1u){{ " / " ~ lanes ~ "u" if lanes > 1 }});
}
{% else %}
fn seen_access(row: u32, j: u32, thread: u32) -> u32 {
    return inside(j, thread);
}
{% endif %}
