{#- The statistics of each group, which a pass writes to the scratch buffer `group_stats` for the next. -#}
{% from "lib/channel_tiles.wgsl" import by_group with context %}
{% macro write_group_stats(low, exists) %}
    if (thread == 0u && {{ exists }}) {
        let at = params.group_stats_start + 3u * row;
        group_stats[at] = mean;
        group_stats[at + 1u] = {{ low }};
        group_stats[at + 2u] = rstd;
    }
{% endmacro %}
{#- `mean`, `low` and `rstd` of the groups of an invocation's column. -#}
{% macro read_group_stats() %}
    let mean = {{ by_group("group_stats", 3, 0) }};
    let low = {{ by_group("group_stats", 3, 1) }};
    let rstd = {{ by_group("group_stats", 3, 2) }};
{% endmacro %}
