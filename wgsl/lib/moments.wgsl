{#- A row's statistics: `mean`, `low` and `rstd`, or `rstd` alone where the norm has no mean. `moment_reductions`
    stands outside functions; then either the row is swept over in memory or it is held in registers.

    Sums are divided by COLS before they are reduced, so that the mean comes out of an addition. WGSL lets a compiler
    contract x - sum / COLS to one operation where it finds both, which takes x from a mean that was not rounded;
    elsewhere it may not, and what `low` corrects in one place would be wrong in the other. -#}
{% from "lib/sweep.wgsl" import sweep_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/park.wgsl" import first_parked, again with context %}
{% macro moment_reductions() %}
{% if has_mean %}
{#- The power of two at or below 1 / sqrt(COLS). -#}
{% for k in range(16, -1, -1) if 4 ** k >= cols and (k == 0 or 4 ** (k - 1) < cols) %}
const SCALE = {{ 0.5 ** k }};
{% endfor %}

{{ row_reduction("sum_x", "f32") }}

{{ row_reduction("sum_deviations", "vec2<f32>") }}
{% else %}
{{ row_reduction("sum_squares", "f32") }}
{% endif %}
{% endmacro %}
{% macro swept_moments() %}
{% if has_mean %}
    let pivot = pivot_of(row);
    var sum = Vec();
    {% call sweep_row() %}
        sum += where_live(h - pivot, Vec(), j, thread);
    {% endcall %}
    let mean = pivot + sum_x(total(sum) * PER_COLUMN, place, lane, subgroup_size);

    var deviations = Vec();
    var spreads = Vec();
    {% call sweep_row() %}
        let d = where_live(h - mean, Vec(), j, thread);
        deviations += d;
        spreads += d * (d * PER_COLUMN);
    {% endcall %}
    let sums = sum_deviations(vec2(total(deviations), total(spreads)), place, lane, subgroup_size);
    let deviation = sums.x;
    let spread = sums.y;
{% include "lib/statistics.wgsl" %}
{% else %}
    var squares = Vec();
    {% call sweep_row() %}
        squares += h * (h * PER_COLUMN);
    {% endcall %}
    let rstd = inverseSqrt(sum_squares(total(squares), place, lane, subgroup_size) + params.eps);
{% endif %}
{% endmacro %}
{#- Text: the difference of `value` from the mean, times SCALE. The product is exact, so that fma is asked for only
    because NVIDIA's compiler, left to itself, took two operations: LayerNorm of bfloat16 was up to 9 % slower. -#}
{% macro distance(value) -%}
fma({{ value }}, Vec(SCALE), -scaled_mean)
{%- endmacro %}
{#- From registers `held`0, `held`1, ...; d0, d1, ... are then the differences from the mean times SCALE, a power
    of two (so that nothing is lost) that makes their squares small enough to be added up. Those of parked steps are
    not kept: `deviation_of` gives them again. `pivot` is text for a value of the row; types narrower than float32 can
    do without, see lib/statistics.wgsl. -#}
{% macro held_moments(held, pivot="pivot_of(row)" if dtype == "float32" else none) %}
{% if has_mean %}
{% if pivot is not none %}
    let pivot = {{ pivot }};
    var sum = Vec();
{% for j in range(steps) %}
    sum += where_live({{ held }}{{ j }} - pivot, Vec(), {{ j }}u, thread);
{% endfor %}
    let mean = pivot + sum_x(total(sum) * PER_COLUMN, place, lane, subgroup_size);
{% else %}
    var sum = {{ held }}0;
{% for j in range(1, steps) %}
    sum += {{ held }}{{ j }};
{% endfor %}
    let mean = sum_x(total(sum) * PER_COLUMN, place, lane, subgroup_size);
{% endif %}

    let scaled_mean = Vec(mean * SCALE);
    var deviations = Vec();
    var spreads = Vec();
{% for j in range(first_parked) %}
    let d{{ j }} = where_live({{ distance(held ~ j) }}, Vec(), {{ j }}u, thread);
    deviations += d{{ j }};
    spreads += d{{ j }} * d{{ j }};
{% endfor %}
{% for j in range(first_parked, steps) %}
    {
        let d = where_live({{ distance(again(j)) }}, Vec(), {{ j }}u, thread);
        deviations += d;
        spreads += d * d;
    }
{% endfor %}
    let sums = sum_deviations(vec2(total(deviations), total(spreads)), place, lane, subgroup_size);
    let deviation = sums.x / SCALE;
    let spread = sums.y * (PER_COLUMN / (SCALE * SCALE));
{% include "lib/statistics.wgsl" %}
{% else %}
    var squares = {{ held }}0 * ({{ held }}0 * PER_COLUMN);
{% for j in range(1, steps) %}
    squares += {{ held }}{{ j }} * ({{ held }}{{ j }} * PER_COLUMN);
{% endfor %}
    let rstd = inverseSqrt(sum_squares(total(squares), place, lane, subgroup_size) + params.eps);
{% endif %}
{% endmacro %}
{% macro deviation_of(j) -%}
{{ "d" ~ j if j < first_parked else distance(again(j)) }}
{%- endmacro %}
{#- After `held_moments` of a forward pass: `held_scale` once a row, then each step normalised. -#}
{% macro held_scale() %}
{% if has_mean and dtype == "float32" %}
    let gain = rstd / SCALE;
    let offset = -low * rstd;
{% elif has_mean %}
    let gain = select(rstd / SCALE, 0.0, alike);
    let offset = select(-low * rstd, 0.0, alike);
{% endif %}
{% endmacro %}
{% macro held_normalised(j) -%}
{{ deviation_of(j) ~ " * gain + offset" if has_mean else again(j) ~ " * rstd" }}
{%- endmacro %}
{#- Text: `h` normalised, once a row's moments are known. -#}
{% macro normalised(h) -%}
{{ "(" ~ h ~ " - mean - low) * rstd" if has_mean else h ~ " * rstd" }}
{%- endmacro %}
