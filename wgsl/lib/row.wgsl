{#- A row: its geometry, loads and stores, and the input of the norm. -#}
{% from "lib/dtype.wgsl" import lanes, shifted, rounded with context %}
{% from "lib/direct.wgsl" import load_input with context %}
{% include "lib/geometry.wgsl" %}

{% include "lib/encode.wgsl" %}
{% include "lib/loads.wgsl" %}
{% include "lib/stores.wgsl" %}
{% if has_residual %}
// h = x + residual, rounded to its storage type: the norm's input equals the stored h.
fn load_input(row: u32, j: u32, thread: u32) -> Vec {
{% set sum = "load_x(row, j, thread) + load_residual(row, j, thread)" ~ (" + load_residual_bias(j, thread)" if has_residual_bias else "") %}
{% if input_dtype == "float32" %}
    return {{ sum }};
{% else %}
    let h = {{ sum }};
    return {{ rounded(input_dtype, "h") }};
{% endif %}
}

{% else %}
fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    return load_x(row, j, thread);
}

{% endif %}
{% if has_mean %}
// A value of the row. Sums of differences from it stay small even if the row is far from 0, so adding many terms costs
// few digits (Chan, Golub and LeVeque 1983, shifted data). Differences from a value that masks a column would overflow.
fn pivot_of(row: u32) -> f32 {
    let first = {{ load_input }}(row, 0u, 0u);
    let value = first{{ "[row_shift]" if shifted else (".x" if lanes > 1) }};
    return select(value, 0.0, abs(value) > 1e35);
}

{% endif %}
// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return {{ {4: "(value.x + value.y) + (value.z + value.w)", 2: "value.x + value.y", 1: "value"}[lanes] }};
}
