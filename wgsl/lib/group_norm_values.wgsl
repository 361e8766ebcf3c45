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

// Writes the activation of z, and with a residual also the norm's input h.
fn store_values(i: u32, h: Vec, z: Vec) {
    store{{ suffix }}_y(i, {{ "activated(z)" if activation else "z" }});
{% if has_residual %}
    store{{ suffix }}_h(i, h);
{% endif %}
}
