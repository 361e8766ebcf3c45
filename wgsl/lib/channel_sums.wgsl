{#- The sums of dz * xhat and of dz over a column, from which dweight and dbias follow. -#}
{% from "lib/channel_tiles.wgsl" import by_channel with context %}
{#- The parameters of a column, 1 and 0 without the option. -#}
{% macro column_parameters() %}
    let weight = {{ by_channel("load_weight") if has_weight else "Vec(1.0)" }};
    let bias = {{ by_channel("load_bias") if has_bias else "Vec()" }};
{% endmacro %}
{#- Adds the Vec at `element`, where the norm's input is `h`. -#}
{% macro add_dz(element, h) %}
        let xhat = ({{ h }} - mean - low) * rstd;
        let dz = load_dz({{ element }}, xhat, weight, bias);
        along += dz * xhat;
        across += dz;
{% endmacro %}
