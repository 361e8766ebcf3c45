{#- The first step of a gradient of rows of any length: `rows` computes each row's statistics, the mean of g * x̂, and the
    mean of g, where g = dy * weight. -#}
{% from "lib/saved.wgsl" import saved_stats as saved_stats_of_row, unpack_saved with context %}
{% from "lib/moments.wgsl" import moment_reductions, swept_moments with context %}
{% from "lib/sweep.wgsl" import sweep with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/direct.wgsl" import total, load_input with context %}
{% from "lib/gradient.wgsl" import row_words with context %}
{{ saved_stats_of_row() if saved_stats else moment_reductions() }}

{{ row_reduction("sum_gradients", "vec2<f32>" if has_mean else "f32") }}

@compute @workgroup_size({{ workgroup_size }})
fn rows(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% if saved_stats %}
    let saved = saved_stats(row);
{{ unpack_saved("saved") }}
{% else %}
{{ swept_moments() }}
{% endif %}

    var along = Vec();
{% if has_mean %}
    var across = Vec();
{% endif %}
    {% call sweep() %}
        let xhat = ({{ load_input }}(row, j, thread){{ " - mean - low" if has_mean }}) * rstd;
        let g = load_dy(row, j, thread){{ " * load_weight(j, thread)" if has_weight }};
        along += g * xhat * PER_COLUMN;
{% if has_mean %}
        across += g * PER_COLUMN;
{% endif %}
    {% endcall %}
    let at = params.row_sums_start + row * {{ row_words }}u;
{% if has_mean %}
    let means = sum_gradients(vec2({{ total("along") }}, {{ total("across") }}), place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        row_sums[at] = rstd;
        row_sums[at + 1u] = means.x;
        row_sums[at + 2u] = mean;
        row_sums[at + 3u] = low;
        row_sums[at + 4u] = means.y;
    }
{% else %}
    let mean_gx = sum_gradients({{ total("along") }}, place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        row_sums[at] = rstd;
        row_sums[at + 1u] = mean_gx;
    }
{% endif %}

    {% endcall %}
}
