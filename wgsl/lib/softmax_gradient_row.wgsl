{#- The rows of softmax's gradient. Columns that the causal mask hides are not read, and have the gradient 0. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% set suffix = "4" if lanes == 4 else "" %}
{% include "lib/op_row.wgsl" %}
{% include "lib/causal.wgsl" %}
{% macro visible(value) -%}
{{ "where_seen(" ~ value ~ ", Vec(), row, j, thread)" if causal else value }}
{%- endmacro %}
{% for name in ("y", "dy") %}

fn load_row_{{ name }}(row: u32, j: u32, thread: u32) -> Vec {
    let value = load{{ suffix }}_{{ name }}(row * COLS + {{ lanes ~ "u * " if lanes > 1 }}seen_access(row, j, thread));
    return where_live({{ visible("value") }}, Vec(), j, thread);
}
{% endfor %}

// An element's part of the row's sum.
fn summand(y: Vec, dy: Vec) -> Vec {
    return {{ "dy" if log else "y * dy" }};
}

// Writes step j of dx.
fn store_row(row: u32, row_exists: bool, j: u32, thread: u32, y: Vec, dy: Vec, sum: f32) {
    if (!row_exists || !live(j, thread)) {
        return;
    }
    let gradient = params.scale * ({{ "dy - exp(y) * sum" if log else "y * (dy - sum)" }});
    store{{ suffix }}_dx(row * COLS + {{ lanes ~ "u * " if lanes > 1 }}access(j, thread), {{ visible("gradient") }});
}
