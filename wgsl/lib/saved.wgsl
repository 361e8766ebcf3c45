{#- `mean`, `low` and `rstd` of a row, as the forward pass saved them. -#}
{% if has_mean %}
    let mean = stats[params.stats_start + 3u * row];
    let low = stats[params.stats_start + 3u * row + 1u];
    let rstd = stats[params.stats_start + 3u * row + 2u];
{% else %}
    let rstd = stats[params.stats_start + row];
{% endif %}
