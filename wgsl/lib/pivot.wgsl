{#- A value of the row from which distances are measured, and the sum of a Vec. -#}
{% from "lib/dtype.wgsl" import lanes, shifted with context %}
{% from "lib/direct.wgsl" import load_input with context %}
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
