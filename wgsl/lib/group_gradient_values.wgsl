{#- The inputs of GroupNorm's gradient, by their place in x. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% set suffix = "4" if lanes == 4 else "" %}
{% include "lib/activations.wgsl" %}

fn load_h(i: u32) -> Vec {
    return load{{ suffix }}_x(i);
}

// dy, times the slope of the activation where the norm's output is xhat * weight + bias.
fn load_dz(i: u32, xhat: Vec, weight: Vec, bias: Vec) -> Vec {
    return load{{ suffix }}_dy(i){{ " * activation_slope(xhat * weight + bias)" if activation }};
}

fn write_dx(i: u32, value: Vec) {
    store{{ suffix }}_dx(i, value);
}
