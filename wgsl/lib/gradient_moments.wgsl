{#- A row's statistics and the sums of its gradient together, where no forward pass saved statistics and the row is held:
    two reductions, or one where the norm has no mean. A reduction for the sums alone would wait for the statistics.

    g * x is added up as the moments are, by distances from the invocation's own pivot, and is moved to the mean once that
    is known. -#}
{% from "lib/moments.wgsl" import own_pivot, distance, scaled_distance, statistics_of_sums, held_scale with context %}
{% from "lib/gradient_row.wgsl" import kept, gradient_at with context %}
{#- Behind `moment_reductions(joined=true)`. `x(j)` and `dy(j)` are text of step j. d0, d1, ... and g0, g1, ... of the first
    `kept` steps stay; `rstd`, `slope` and, with a mean, `mean`, `low` and `level` follow. -#}
{% macro joined_moments(x, dy, weight_held, row_pivot) %}
{% if has_mean %}
    let row_pivot = {{ row_pivot }};
    let pivot = {{ own_pivot(x) }};
    let scaled_pivot = Vec(pivot * SCALE);
    var sum = Vec();
    var across = Vec();
{% endif %}
    var squares = Vec();
    var along = Vec();
{% for j in range(steps) %}
{{ "    {" if j >= kept }}
{% set d, g, h = ("d" ~ j, "g" ~ j, x(j)) if j < kept else ("d", "g", "h") %}
    let {{ g }} = {{ gradient_at(j, dy(j), weight_held) }};
{% if has_mean %}
    let {{ d }} = where_live({{ distance(x(j), "scaled_pivot") }}, Vec(), {{ j }}u, thread);
    sum += {{ d }};
    squares += {{ d }} * {{ d }};
    along += {{ g }} * {{ d }};
    across += {{ g }};
{% else %}
{{ "    let h = " ~ x(j) ~ ";" if j >= kept }}
    squares += {{ h }} * ({{ h }} * PER_COLUMN);
    along += {{ g }} * {{ h }};
{% endif %}
{{ "    }" if j >= kept }}
{% endfor %}
{% if has_mean %}
    let count = own_columns(thread);
    let own = vec2(total(sum), total(squares));
    let own_g = total(across);
    let about_row = moved(count, own, {{ scaled_distance("pivot", "row_pivot") }}).x;
    let first = sum_x(vec2(about_row, own_g) * PER_COLUMN, place, lane, subgroup_size);
    let mean = row_pivot + first.x / SCALE;
    let apart = {{ scaled_distance("pivot", "mean") }};
    let own_gx = fma(apart, own_g, total(along)) * PER_COLUMN;
    let sums = sum_deviations(vec3(moved(count, own, apart), own_gx), place, lane, subgroup_size);
{{ statistics_of_sums(false) }}
{{ held_scale(kept) }}
    let slope = (low * rstd * first.y - sums.z * gain) * rstd;
    let level = -first.y * rstd;
{% else %}
    let sums = sum_squares(vec2(total(squares), total(along) * PER_COLUMN), place, lane, subgroup_size);
    let rstd = inverseSqrt(sums.x + params.eps);
    let slope = -(sums.y * rstd) * rstd;
{% endif %}
{% endmacro %}
