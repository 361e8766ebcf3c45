{#- The input of GroupNorm and its outputs, by their place in x. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% set suffix = "4" if lanes == 4 else "" %}
{% include "lib/activations.wgsl" %}
{% if has_residual %}
{% include "lib/round.wgsl" %}
{% endif %}

fn load_h(i: u32) -> Vec {
{% if has_residual %}
    return rounded(load{{ suffix }}_x(i) + load{{ suffix }}_residual(i));
{% else %}
    return load{{ suffix }}_x(i);
{% endif %}
}

{% if vector_width == 8 %}
fn load_pair_of_h(i: u32) -> mat2x4<f32> {
{% if has_residual %}
    let x = load8_x(i);
    let residual = load8_residual(i);
    return mat2x4<f32>(rounded(x[0] + residual[0]), rounded(x[1] + residual[1]));
{% else %}
    return load8_x(i);
{% endif %}
}

// Writes the activations of eight elements, and with a residual also the norm's input h.
fn store_pair_of_values(i: u32, h: mat2x4<f32>, low: Vec, high: Vec) {
    store8_y(i, mat2x4<f32>({{ "activated(low), activated(high)" if activation else "low, high" }}));
{% if has_residual %}
    store8_h(i, h);
{% endif %}
}
{% else %}
// Writes the activation of z, and with a residual also the norm's input h.
fn store_values(i: u32, h: Vec, z: Vec) {
    store{{ suffix }}_y(i, {{ "activated(z)" if activation else "z" }});
{% if has_residual %}
    store{{ suffix }}_h(i, h);
{% endif %}
}
{% endif %}
