{#- A row's statistics: `mean`, `low` and `rstd`, or only `rstd` for a norm without mean. `moment_reductions` contains the
    declarations at module scope. The statistics come from one sweep over memory, or from a row in registers.

    Each invocation adds up its columns as distances from a pivot, one of its values. So one sweep is enough and nothing
    cancels. When the mean is known, the sums are moved there (Chan, Golub and LeVeque 1979). Distances are multiplied by
    SCALE, a power of two, so that they stay exact and the sum of their squares does not overflow.

    Sums are divided by COLS before the reduction, so that the mean is the result of an addition. WGSL lets a compiler
    contract x - sum / COLS into one operation, which subtracts an unrounded mean. It may do so in one place and not in
    another, and then `low` would be correct in only one of them. -#}
{% from "lib/sweep.wgsl" import sweep_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/dtype.wgsl" import lanes, shifted, last_access, input_dtype with context %}
{% from "lib/direct.wgsl" import load_input, total, where_live with context %}
{#- `early_sums`: the sums of a gradient, which are reduced together with the row's, see `held_moments`. -#}
{% macro moment_reductions(early_sums=false) %}
{% if has_mean %}
{#- The power of two at or below 1 / sqrt(COLS). -#}
{% for k in range(16, -1, -1) if 4 ** k >= cols and (k == 0 or 4 ** (k - 1) < cols) %}
const SCALE = {{ 0.5 ** k }};
{% endfor %}

// The median, which is never a single outlier. Values that mask a column are replaced, because differences overflow.
fn middle_of(a: f32, b: f32, c: f32) -> f32 {
{% if input_dtype == "float16" %}
    return max(min(a, b), min(max(a, b), c));
{% else %}
    let value = max(min(a, b), min(max(a, b), c));
    return select(value, 0.0, abs(value) > 1e35);
{% endif %}
}

// The sum and the sum of squares of `count` values, moved by a distance.{{ " Squares beyond float32's range stay infinite." if input_dtype != "float16" }}
fn moved(count: f32, sums: vec2<f32>, by: f32) -> vec2<f32> {
    let sum = fma(count, by, sums.x);
    let squares = sums.y + by * (sums.x + sum);
    return vec2(sum, {{ "squares" if input_dtype == "float16" else "select(squares, sums.y, sums.y > 1e38 && abs(by) < 1e38)" }});
}

{{ row_reduction("sum_x", "vec2<f32>" if early_sums else "f32") }}

{{ row_reduction("sum_deviations", "vec3<f32>" if early_sums else "vec2<f32>") }}
{% else %}
{{ row_reduction("sum_squares", "f32") }}
{% endif %}
{% endmacro %}
{#- Text: the difference of `value` and `taken`, times SCALE. The product is exact, so fma does not change the result. It is
    explicit because NVIDIA's compiler used two operations, with which bfloat16 LayerNorm was up to 9 % slower. -#}
{% macro distance(value, taken) -%}
fma({{ value }}, Vec(SCALE), -{{ taken }})
{%- endmacro %}
{% macro scaled_distance(value, taken) -%}
fma({{ value }}, SCALE, -({{ taken }} * SCALE))
{%- endmacro %}
{#- Text: one of the invocation's values in its first steps (`held(j)` is the text of step j), or the row's pivot if it has
    none. It compares no neighbouring values, because outliers tend to be neighbours. -#}
{% macro own_pivot(held) -%}
middle_of(
{%- for step, lane in {4: [(0, 0), (0, 3), (1, 2)], 2: [(0, 0), (1, 1), (2, 0)], 1: [(0, 0), (1, 0), (2, 0)]}[lanes] -%}
{% set j = [step, steps - 1] | min -%}
{{ where_live(held(j), "Vec(row_pivot)", j ~ "u") }}{{ "[" ~ lane ~ "]" if lanes > 1 }}{{ ", " if not loop.last }}
{%- endfor -%}
)
{%- endmacro %}
{#- Computes the row's statistics from `sum` and `squares` about `pivot`. `apart` is the distance from the mean to the
    pivot. With `early_sums`, it also computes means.y, the mean of g, from `along`, and sums.z, the sum of
    g * (x - mean) * SCALE, from `across`. -#}
{% macro join_moments(early_sums=false, squares=total("squares")) %}
    let count = own_columns(thread);
    let own = vec2({{ total("sum") }}, {{ squares }});
    let about_row = moved(count, own, {{ scaled_distance("pivot", "row_pivot") }}).x;
{% if early_sums %}
    let own_g = {{ total("across") }};
    let means = sum_x(vec2(about_row, own_g) * PER_COLUMN, place, lane, subgroup_size);
    let mean = row_pivot + means.x / SCALE;
{% else %}
    let mean = row_pivot + sum_x(about_row * PER_COLUMN, place, lane, subgroup_size) / SCALE;
{% endif %}
    let apart = {{ scaled_distance("pivot", "mean") }};
{% if early_sums %}
    let own_gx = fma(apart, own_g, {{ total("along") }}) * PER_COLUMN;
    let sums = sum_deviations(vec3(moved(count, own, apart), own_gx), place, lane, subgroup_size);
{% else %}
    let sums = sum_deviations(moved(count, own, apart), place, lane, subgroup_size);
{% endif %}
{{ statistics_of_sums(false) }}
{% endmacro %}
{% macro statistics_of_sums(without_pivot) %}
    let deviation = sums.x / SCALE;
    let spread = sums.y * (PER_COLUMN / (SCALE * SCALE));
{% include "lib/statistics.wgsl" %}
{% endmacro %}
{#- Ops with an op.py have rows of millions of elements. Their squares are added up over 16 steps at a time, and the results
    in a second accumulator. -#}
{% set keeps = row_elements is defined %}
{% set swept_squares = ("kept + " if keeps else "") ~ total("squares") %}
{#- An invocation with many columns continues from their mean. A pivot that is an outlier then costs digits in few columns. -#}
{% macro move_pivot() %}
        if (j % 16u == 15u && access(j, thread) < {{ last_access }}) {
            let own = vec2({{ total("sum") }}, {{ swept_squares }});
            let count = f32({{ lanes }}u * (j + 1u){{ " - select(0u, row_shift, thread == 0u)" if shifted }});
            let better = pivot + own.x / (count * SCALE);
            if (own.y < 1e38) {
                let sums = moved(count, own, {{ scaled_distance("pivot", "better") }});
                sum = Vec();
                squares = Vec();
                sum{{ ".x" if lanes > 1 }} = sums.x;
                {{ "kept" if keeps else ("squares.x" if lanes > 1 else "squares") }} = sums.y;
                pivot = better;
            }
        }
{% endmacro %}
{% macro loaded(j) -%}
{{ load_input }}(row, {{ j }}u, thread)
{%- endmacro %}
{% macro swept_moments() %}
{% if has_mean %}
    let row_pivot = pivot_of(row);
    var pivot = {{ own_pivot(loaded) }};
    var sum = Vec();
    var squares = Vec();
{% if keeps %}
    var kept = 0.0;
{% endif %}
    {% call sweep_row(move_pivot()) %}
        let d = {{ where_live(distance("h", "Vec(pivot * SCALE)"), "Vec()", "j") }};
        sum += d;
        squares += d * d;
    {% endcall %}
{{ join_moments(squares=swept_squares) }}
{% else %}
    var squares = Vec();
    {% call sweep_row() %}
        squares += h * (h * PER_COLUMN);
    {% endcall %}
    let rstd = inverseSqrt(sum_squares({{ total("squares") }}, place, lane, subgroup_size) + params.eps);
{% endif %}
{% endmacro %}
{#- The statistics of a row in registers, or of the values whose text is `held(j)`. Afterwards d0, d1, ... are the
    differences times SCALE of the first `kept` steps. `again(j)` is the text of the other steps after the first sweep,
    `row_pivot` is the text of the row's pivot.

    With `sweeps` 2, a separate sweep computes the mean, and distances are measured from it. That takes more operations
    per element and fewer per invocation. Types narrower than float32 then need no pivot, see lib/statistics.wgsl.

    `early_step(j, d)` is text that adds step j of a gradient, at distance d from the pivot, to its sums `along` and
    `across`. They are reduced with the row's sums; a separate reduction would have to wait for the statistics. -#}
{% set twice = sweeps is defined and sweeps == 2 %}
{% macro held_moments(held, again, kept, row_pivot, early_step=none) %}
{% if has_mean and twice %}
{{ mean_of_held(held, row_pivot) }}
    let scaled_mean = Vec(mean * SCALE);
{{ sums_of_held(held, again, kept, "scaled_mean") }}
    let sums = sum_deviations(vec2({{ total("sum") }}, {{ total("squares") }}), place, lane, subgroup_size);
{{ statistics_of_sums(input_dtype != "float32") }}
{% elif has_mean %}
    let row_pivot = {{ row_pivot }};
    let pivot = {{ own_pivot(held) }};
    let scaled_pivot = Vec(pivot * SCALE);
{{ sums_of_held(held, held, kept, "scaled_pivot", early_step) }}
{{ join_moments(early_step is not none) }}
{% else %}
    var squares = {{ held(0) }} * ({{ held(0) }} * PER_COLUMN);
{% for j in range(1, steps) %}
    squares += {{ held(j) }} * ({{ held(j) }} * PER_COLUMN);
{% endfor %}
    let rstd = inverseSqrt(sum_squares({{ total("squares") }}, place, lane, subgroup_size) + params.eps);
{% endif %}
{% endmacro %}
{% macro mean_of_held(held, row_pivot) %}
{% if input_dtype == "float32" %}
    let row_pivot = {{ row_pivot }};
    var column_sum = Vec();
{% for j in range(steps) %}
    column_sum += {{ where_live(held(j) ~ " - row_pivot", "Vec()", j ~ "u") }};
{% endfor %}
    let mean = row_pivot + sum_x({{ total("column_sum") }} * PER_COLUMN, place, lane, subgroup_size);
{% else %}
    var column_sum = {{ held(0) }};
{% for j in range(1, steps) %}
    column_sum += {{ held(j) }};
{% endfor %}
    let mean = sum_x({{ total("column_sum") }} * PER_COLUMN, place, lane, subgroup_size);
{% endif %}
{% endmacro %}
{% macro sums_of_held(held, again, kept, taken, early_step=none) %}
    var sum = Vec();
    var squares = Vec();
{% for j in range(steps) %}
{% set d = "d" ~ j if j < kept else "d" %}
{{ "    {" if j >= kept }}
    let {{ d }} = {{ where_live(distance(held(j) if j < kept else again(j), taken), "Vec()", j ~ "u") }};
    sum += {{ d }};
    squares += {{ d }} * {{ d }};
{{ early_step(j, d) if early_step is not none }}
{{ "    }" if j >= kept }}
{% endfor %}
{% endmacro %}
{#- After `held_moments`: first once per row, then each step normalized. For a step without a kept difference, the distance
    from the pivot is not computed again: drivers would contract it with `offset`, which subtracts an unrounded mean. -#}
{% macro held_scale(kept) %}
{% if has_mean and twice and input_dtype != "float32" %}
    let gain = select(rstd / SCALE, 0.0, alike);
    let offset = select(-low * rstd, 0.0, alike);
{% elif has_mean %}
    let gain = rstd / SCALE;
    let offset = {{ "-low * rstd" if twice else "(apart - low * SCALE) * gain" }};
{% if kept < steps and not twice %}
    let scaled_mean = Vec(mean * SCALE);
    let low_offset = -low * rstd;
{% endif %}
{% endif %}
{% endmacro %}
{% macro held_normalized(j, kept, again) -%}
{% if not has_mean -%}
{{ again(j) }} * rstd
{%- elif j < kept -%}
d{{ j }} * gain + offset
{%- else -%}
{{ distance(again(j), "scaled_mean") }} * gain + {{ "offset" if twice else "low_offset" }}
{%- endif %}
{%- endmacro %}
{#- Text: `h` normalized, once a row's moments are known. -#}
{% macro normalized(h) -%}
{{ "(" ~ h ~ " - mean - low) * rstd" if has_mean else h ~ " * rstd" }}
{%- endmacro %}
