{#- The rows of softmax: row r is query r % queries of batch element r / queries. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% set suffix = "4" if lanes == 4 else "" %}
{% include "lib/op_row.wgsl" %}
{% include "lib/causal.wgsl" %}

// The lowest float32. It replaces columns past the row, since compilers may assume finite numbers.
const LOWEST = -3.4028234e38;
{% if causal %}

// -inf as a constant would be an error.
fn hidden() -> Vec {
    var bits = 0xff800000u;
    return Vec(bitcast<f32>(bits));
}
{% endif %}

// The logits at step j: scale * x plus the masks, -inf in hidden columns.
fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    let e = {{ lanes ~ "u * " if lanes > 1 }}seen_access(row, j, thread);
    let z = load{{ suffix }}_x(row * COLS + e) * params.scale
        {{- " + load" ~ suffix ~ "_mask(row % queries * COLS + e)" if has_mask }}
        {{- " + load" ~ suffix ~ "_batch_mask(row * COLS + e)" if has_batch_mask }};
    return where_live({{ "where_seen(z, hidden(), row, j, thread)" if causal else "z" }}, Vec(LOWEST), j, thread);
}

fn store_row(row: u32, row_exists: bool, j: u32, thread: u32, y: Vec) {
    if (row_exists && live(j, thread)) {
        store{{ suffix }}_y(row * COLS + {{ lanes ~ "u * " if lanes > 1 }}access(j, thread), y);
    }
}

fn greatest(v: Vec) -> f32 {
    return {{ "max(max(v.x, v.y), max(v.z, v.w))" if lanes == 4 else "v" }};
}

// The factor of exp(z - maximum). A row whose columns are all hidden has the sum 0.
fn reciprocal_of(sum: f32) -> f32 {
    return {{ "select(1.0 / sum, 0.0, sum == 0.0)" if fully_masked == "zeros" else "1.0 / sum" }};
}
{% if log %}

fn logarithm_of(sum: f32) -> f32 {
    return {{ "select(log(sum), 0.0, sum == 0.0)" if fully_masked == "zeros" else "log(sum)" }};
}
{% endif %}
