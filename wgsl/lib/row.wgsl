{#- A row: its geometry, loads and stores, and the input of the norm. -#}
{% from "lib/dtype.wgsl" import rounded_to with context %}
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
    return {{ rounded_to(input_dtype, "h") }};
{% endif %}
}

{% else %}
fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    return load_x(row, j, thread);
}

{% endif %}
{% include "lib/pivot.wgsl" %}
