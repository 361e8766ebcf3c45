{#- The rows of a modulated norm: row r belongs to batch element r / rows. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% include "lib/op_row.wgsl" %}
{% include "lib/activations.wgsl" %}
{% if has_residual %}
{% include "lib/round.wgsl" %}
{% endif %}
{% set suffix = "4" if lanes == 4 else "" %}

// The place of column c of the row's batch element in scale, shift and gate.
fn element_of(row: u32, c: u32) -> u32 {
    return row / rows * COLS + c;
}

// h, the norm's input.
fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    let c = {{ lanes }}u * inside(j, thread);
    let i = row * COLS + c;
{% if has_residual %}
    let added = load{{ suffix }}_residual(i){{ " * load" ~ suffix ~ "_gate(element_of(row, c))" if has_gate }};
    return where_live(rounded(load{{ suffix }}_x(i) + added), Vec(), j, thread);
{% else %}
    return where_live(load{{ suffix }}_x(i), Vec(), j, thread);
{% endif %}
}

// Writes step j of the row: its input h, and its output from the normalized h.
fn store_row(row: u32, row_exists: bool, j: u32, thread: u32, h: Vec, normalized: Vec) {
    if (!row_exists || !live(j, thread)) {
        return;
    }
    let c = {{ lanes }}u * access(j, thread);
    let n = normalized{{ " * load" ~ suffix ~ "_weight(c)" if has_weight }}{{ " + load" ~ suffix ~ "_bias(c)" if has_bias }};
    let u = n{{ " * (1.0 + load" ~ suffix ~ "_scale(element_of(row, c)))" if has_scale }}{{ " + load" ~ suffix ~ "_shift(element_of(row, c))" if has_shift }};
    store{{ suffix }}_y(row * COLS + c, {{ "activated(u)" if activation else "u" }});
{% if has_residual %}
    store{{ suffix }}_h(row * COLS + c, h);
{% endif %}
}
