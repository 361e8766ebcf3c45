{#- The statistics that the forward pass saved: `saved_stats` is a declaration at module scope, `unpack_saved` defines
    `mean`, `low` and `rstd`. -#}
{% macro saved_stats() %}
{% if "stats" in tensors | map(attribute="name") | list %}
fn saved_stats(row: u32) -> {{ "vec3<f32>" if has_mean else "f32" }} {
{% if has_mean %}
    let at = params.stats_start + 3u * row;
    return vec3(stats[at], stats[at + 1u], stats[at + 2u]);
{% else %}
    return stats[params.stats_start + row];
{% endif %}
}
{% endif %}
{% endmacro %}
{#- The normalized value of a Vec of x. -#}
{% macro saved_xhat(x) -%}
{{ "(" ~ x ~ " - mean) * rstd - low * rstd" if has_mean else x ~ " * rstd" }}
{%- endmacro %}
{% macro unpack_saved(saved) %}
{% if has_mean %}
    let mean = {{ saved }}.x;
    let low = {{ saved }}.y;
    let rstd = {{ saved }}.z;
{% else %}
    let rstd = {{ saved }};
{% endif %}
{% endmacro %}
