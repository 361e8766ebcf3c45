{#- The sums of dz * xhat and of dz over a column, from which dweight and dbias follow. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/channel_tiles.wgsl" import by_channel, first_layout with context %}
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
{#- Stores the sums of a column. -#}
{% macro store_channel_sums(dweight, dbias) %}
{% for name, value in [("dweight", dweight), ("dbias", dbias)] if {"dweight": has_weight, "dbias": has_bias}[name] %}
{% if first_layout or lanes == 1 %}
        store_{{ name }}(column, {{ total(value) }});
{% else %}
{% for k in range(lanes) %}
        store_{{ name }}({{ lanes }}u * column + {{ k }}u, {{ value }}[{{ k }}]);
{% endfor %}
{% endif %}
{% endfor %}
{% endmacro %}
