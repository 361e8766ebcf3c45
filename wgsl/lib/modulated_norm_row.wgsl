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

{% if vector_width < 8 %}
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
{% else %}

// Steps j and j + 1, which share an access.
fn load_pair(row: u32, j: u32, thread: u32) -> mat2x4<f32> {
    let c = 8u * pair_inside(j, thread);
    let i = row * COLS + c;
    let x = load8_x(i);
{% if has_residual %}
    let residual = load8_residual(i);
{% if has_gate %}
    let gate = load8_gate(element_of(row, c));
{% endif %}
{% endif %}
    return mat2x4<f32>(
{% for k in range(2) %}
{% set x = "rounded(x[" ~ k ~ "] + residual[" ~ k ~ "]" ~ (" * gate[" ~ k ~ "]" if has_gate) ~ ")" if has_residual else "x[" ~ k ~ "]" %}
        where_live({{ x }}, Vec(), j + {{ k }}u, thread),
{% endfor %}
    );
}

// The scale and the shift of steps j and j + 1.
struct Scales {
    scale: mat2x4<f32>,
    shift: mat2x4<f32>,
}

fn load_scales(row: u32, j: u32, thread: u32) -> Scales {
    let at = element_of(row, 8u * pair_inside(j, thread));
    var scales: Scales;
{% for name in ["scale", "shift"] if name in tensors | map(attribute="name") | list %}
    scales.{{ name }} = load8_{{ name }}(at);
{% endfor %}
    return scales;
}

// Writes steps j and j + 1 of the row.
fn store_pair(row: u32, row_exists: bool, j: u32, thread: u32, h: mat2x4<f32>, low: Vec, high: Vec, scales: Scales) {
    if (!row_exists || !live(j, thread)) {
        return;
    }
    let c = 4u * access(j, thread);
{% for name in ["weight", "bias"] if name in tensors | map(attribute="name") | list %}
    let {{ name }} = load8_{{ name }}(c);
{% endfor %}
{% for k, half in [(0, "low"), (1, "high")] %}
    let n{{ k }} = {{ half }}{{ " * weight[" ~ k ~ "]" if has_weight }}{{ " + bias[" ~ k ~ "]" if has_bias }};
    let u{{ k }} = n{{ k }}{{ " * (1.0 + scales.scale[" ~ k ~ "])" if has_scale }}{{ " + scales.shift[" ~ k ~ "]" if has_shift }};
{% endfor %}
    store8_y(row * COLS + c, mat2x4<f32>({{ "activated(u0), activated(u1)" if activation else "u0, u1" }}));
{% if has_residual %}
    store8_h(row * COLS + c, h);
{% endif %}
}
{% endif %}
