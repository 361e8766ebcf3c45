{#- A row: its geometry, loads and stores, and the input of the norm. -#}
{% from "lib/dtype.wgsl" import decoded, encoded with context %}
{% include "lib/geometry.wgsl" %}

{% include "lib/encode.wgsl" %}
{% include "lib/loads.wgsl" %}
{% include "lib/stores.wgsl" %}
{% if has_residual %}
// h = x + residual, rounded to its storage type: the norm's input equals the stored h.
fn load_input(row: u32, j: u32, thread: u32) -> Vec {
{% set sum = "load_x(row, j, thread) + load_residual(row, j, thread)" ~ (" + load_residual_bias(j, thread)" if has_residual_bias else "") %}
{% if dtype == "float32" %}
    return {{ sum }};
{% else %}
    let h = {{ sum }};
    return {{ "round_float16(h)" if dtype == "float16" else decoded(dtype, encoded(dtype, "h")) }};
{% endif %}
}

{% else %}
fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    return load_x(row, j, thread);
}

{% endif %}
{% include "lib/pivot.wgsl" %}
