{#- Rows that several workgroups share: each workgroup takes a part, with STEPS Vecs per invocation. A first pass writes
    the results of its part as a record of `parts`, and the next pass joins the records of a row. -#}
{% from "lib/place.wgsl" import locate with context %}
{% from "lib/locate.wgsl" import locate_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/dtype.wgsl" import lanes, shifted with context %}
{% from "lib/direct.wgsl" import total, where_live with context %}
{#- Text: the number of rows, as in lib/locate.wgsl. -#}
{% set row_count = row_count if row_count is defined else "params.rows" %}
{#- Words per record of statistics. -#}
{% set moments = 3 if has_mean else 1 %}
{#- The body of an entry point that works on one part of a row. `backwards` begins with the last part: it has been read
    last by an earlier pass, and may still be in the cache. -#}
{% macro each_part(backwards=false) %}
{% set body = caller() %}
{{ locate("thread" ~ body) }}
{% if capped is defined and capped %}
    let workgroup_count = workgroups.x * workgroups.y;
    for (var item = workgroup; item < params.rows * PARTS; item += workgroup_count) {
{{ part_of("item") }}
{{ body }}
        next_turn();
    }
{% else %}
{{ part_of(("(" ~ row_count ~ " * PARTS - 1u - workgroup)") if backwards else "workgroup") }}
{{ body }}
{% endif %}
{% endmacro %}
{% macro part_of(item) %}
{{ locate_row(item ~ " / PARTS") }}
    let part = {{ item }} % PARTS;
    let first = part * STEPS;
{% endmacro %}
{% macro part_functions() %}
const PARTS = {{ row_parts }}u;  // workgroups of a row
const PART_COLUMNS = {{ lanes }}u * STEPS * THREADS;

// The number of the row's columns in a part; the last part may have none.
fn columns_in(part: u32) -> f32 {
{% if shifted %}
    let begin = max(part * PART_COLUMNS, row_shift);
    let end = min((part + 1u) * PART_COLUMNS, row_shift + COLS);
    return f32(max(end, begin) - begin);
{% else %}
    return f32(min(PART_COLUMNS, COLS - part * PART_COLUMNS));
{% endif %}
}
{% endmacro %}
{#- The functions of the first pass and of the joining pass. -#}
{% macro part_reductions() %}
{% if has_mean %}
{{ row_reduction("sum_part", "f32") }}

{{ row_reduction("sum_deviations", "vec2<f32>") }}
{% else %}
{{ row_reduction("sum_squares", "f32") }}
{% endif %}
{% endmacro %}
{% macro joining_reductions() %}
{% if has_mean %}
{{ row_reduction("sum_means", "f32") }}

{% endif %}
{{ row_reduction("sum_spreads", "f32") }}
{% endmacro %}
{#- Computes the moments of a part from `held`0, `held`1, ...: `part_mean`, `part_low` (its rounding error) and
    `part_spread`, the sum of squared deviations / COLS. d0, d1, ... are the deviations. -#}
{% macro part_moments(held) %}
{% if has_mean %}
    let pivot = pivot_of(row);
    var sum = Vec();
{% for j in range(steps) %}
    sum += {{ where_live(held ~ j ~ " - pivot", "Vec()", "first + " ~ j ~ "u") }};
{% endfor %}
    let count = max(columns_in(part), 1.0);
    let part_mean = pivot + sum_part({{ total("sum") }} / count, place, lane, subgroup_size);

    var deviations = Vec();
    var spreads = Vec();
{% for j in range(steps) %}
    let d{{ j }} = {{ where_live(held ~ j ~ " - part_mean", "Vec()", "first + " ~ j ~ "u") }};
    deviations += d{{ j }};
    spreads += d{{ j }} * (d{{ j }} * PER_COLUMN);
{% endfor %}
    let sums = sum_deviations(vec2({{ total("deviations") }}, {{ total("spreads") }}), place, lane, subgroup_size);
    let part_low = sums.x / count;
    // Beyond float32's range as in lib/statistics.wgsl.
    let part_spread = select(sums.y, max(sums.y - part_low * (part_low * (count * PER_COLUMN)), 0.0), sums.y < 1e38);
{% else %}
    var squares = {{ held }}0 * ({{ held }}0 * PER_COLUMN);
{% for j in range(1, steps) %}
    squares += {{ held }}{{ j }} * ({{ held }}{{ j }} * PER_COLUMN);
{% endfor %}
    let part_spread = sum_squares({{ total("squares") }}, place, lane, subgroup_size);
{% endif %}
{% endmacro %}
{#- Stores the moments of a part as the first words of its record. -#}
{% macro store_moments(words) %}
    if (thread == 0u && row_exists) {
        let at = params.parts_start + (row * PARTS + part) * {{ words }}u;
{% if has_mean %}
        parts[at] = part_mean;
        parts[at + 1u] = part_low;
        parts[at + 2u] = part_spread;
{% else %}
        parts[at] = part_spread;
{% endif %}
    }
{% endmacro %}
{#- Chan, Golub and LeVeque (1979) for all parts of a row at once. It uses the distances of the parts' means from the first
    part's mean, their weighted mean `low`, and the spread of the parts about it. `mean` is the first part's mean, and the
    row's mean is `mean` + `low` to twice float32's digits. -#}
{% macro joined_parts(words) %}
    let records = params.parts_start + row * {{ words }}u * PARTS;
{% if has_mean %}
    let mean = parts[records];
    var distances = 0.0;
    for (var other = thread; other < PARTS; other += THREADS) {
        let at = records + {{ words }}u * other;
        distances += ((parts[at] - mean) + parts[at + 1u]) * (columns_in(other) * PER_COLUMN);
    }
    let low = sum_means(distances, place, lane, subgroup_size);
    var spread_of_parts = 0.0;
    for (var other = thread; other < PARTS; other += THREADS) {
        let at = records + {{ words }}u * other;
        let distance = (parts[at] - mean) + parts[at + 1u] - low;
        spread_of_parts += parts[at + 2u] + distance * (distance * (columns_in(other) * PER_COLUMN));
    }
    let variance = sum_spreads(spread_of_parts, place, lane, subgroup_size);
{% else %}
    var squares_of_parts = 0.0;
    for (var other = thread; other < PARTS; other += THREADS) {
        squares_of_parts += parts[records + {{ words }}u * other];
    }
    let variance = sum_spreads(squares_of_parts, place, lane, subgroup_size);
{% endif %}
    let rstd = inverseSqrt(variance + params.eps);
{% endmacro %}
