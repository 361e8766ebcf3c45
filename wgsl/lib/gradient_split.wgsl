{#- A row's sums from its parts: `measure` writes the sums of a part, `join` combines the records of a row into one.
    Distances are measured from the part's own mean, because the row's mean is not known yet. -#}
{% from "lib/split.wgsl" import each_part, part_functions, part_reductions, joining_reductions, part_moments, store_moments, joined_parts, moments with context %}
{% from "lib/saved.wgsl" import saved_stats as saved_stats_of_row, unpack_saved with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/gradient.wgsl" import row_words with context %}
{#- The record of a part: its moments, and the sums of g * d / COLS and g / COLS, where d is the distance from the part's
    mean. With given statistics, only the sums of g * x̂ / COLS and g / COLS. -#}
{% set words = (0 if saved_stats else moments) + (2 if has_mean else 1) %}
{{ part_functions() }}
{{ saved_stats_of_row() if saved_stats else part_reductions() }}

{{ row_reduction("sum_gradients", "vec2<f32>" if has_mean else "f32") }}

@compute @workgroup_size({{ workgroup_size }})
fn measure(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_part() %}

{% for j in range(steps) %}
    let x{{ j }} = load_x(row, first + {{ j }}u, thread);
    let dy{{ j }} = load_dy(row, first + {{ j }}u, thread);
{% endfor %}
{% if saved_stats %}
    let saved = saved_stats(row);
{{ unpack_saved("saved") }}
{% else %}
{{ part_moments("x") }}
{{ store_moments(words) }}
{% endif %}

    var along = Vec();
{% if has_mean %}
    var across = Vec();
{% endif %}
{% for j in range(steps) %}
    let g{{ j }} = dy{{ j }}{{ " * load_weight(first + " ~ j ~ "u, thread)" if has_weight }};
    along += g{{ j }} * {{ ("(x" ~ j ~ (" - mean - low" if has_mean else "") ~ ") * rstd") if saved_stats else ("(d" ~ j ~ " - part_low)" if has_mean else "x" ~ j) }} * PER_COLUMN;
{% if has_mean %}
    across += g{{ j }} * PER_COLUMN;
{% endif %}
{% endfor %}
    let gradients = sum_gradients({{ "vec2(" ~ total("along") ~ ", " ~ total("across") ~ ")" if has_mean else total("along") }}, place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        let at = params.parts_start + (row * PARTS + part) * {{ words }}u + {{ 0 if saved_stats else moments }}u;
{% if has_mean %}
        parts[at] = gradients.x;
        parts[at + 1u] = gradients.y;
{% else %}
        parts[at] = gradients;
{% endif %}
    }
    {% endcall %}
}

{% if not saved_stats %}
{{ joining_reductions() }}

{% endif %}
{{ row_reduction("join_gradients", "vec2<f32>" if has_mean else "f32") }}

@compute @workgroup_size({{ workgroup_size }})
fn join(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% if saved_stats %}
    let saved = saved_stats(row);
{{ unpack_saved("saved") }}
    let records = params.parts_start + row * {{ words }}u * PARTS;
{% else %}
{{ joined_parts(words) }}
{% endif %}
    var own = {{ "vec2<f32>()" if has_mean else "0.0" }};
    for (var other = thread; other < PARTS; other += THREADS) {
        let at = records + {{ words }}u * other;
{% if saved_stats %}
        own += {{ "vec2(parts[at], parts[at + 1u])" if has_mean else "parts[at]" }};
{% elif has_mean %}
        let distance = (parts[at] - mean) + parts[at + 1u] - low;
        own += vec2(parts[at + 3u] + parts[at + 4u] * distance, parts[at + 4u]);
{% else %}
        own += parts[at + 1u];
{% endif %}
    }
    let joined = join_gradients(own, place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        let at = params.row_sums_start + row * {{ row_words }}u;
        row_sums[at] = rstd;
{% if has_mean %}
        row_sums[at + 1u] = joined.x{{ " * rstd" if not saved_stats }};
        row_sums[at + 2u] = mean;
        row_sums[at + 3u] = low;
        row_sums[at + 4u] = joined.y;
{% else %}
        row_sums[at + 1u] = joined{{ " * rstd" if not saved_stats }};
{% endif %}
    }
    {% endcall %}
}
