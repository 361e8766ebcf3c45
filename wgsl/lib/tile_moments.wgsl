{#- The statistics of groups from tiles: `measure_tile` writes the moments of each column of a tile to `tile_moments`, and
    `join_tiles` computes `mean`, `low` and `rstd` of a group from them. `load_h(element)` is the norm's input. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/channel_tiles.wgsl" import locate_tile, tile_rounds, merge_columns with context %}
{% macro lane(k) -%}{{ "[" ~ k ~ "]" if lanes > 1 }}{%- endmacro %}
{% macro tile_moment_functions() %}
// Of each invocation: the number of its Vecs, a mean near theirs, their mean's distance from it, and the sum of squared
// distances from their mean / COLS.
var<workgroup> counts: array<f32, {{ tile_size }}>;
var<workgroup> means: array<Vec, {{ tile_size }}>;
var<workgroup> lows: array<Vec, {{ tile_size }}>;
var<workgroup> spreads: array<Vec, {{ tile_size }}>;

// Chan, Golub and LeVeque (1979).
fn merge_moments(place: u32, other: u32) {
    let count = counts[place] + counts[other];
    let part = counts[other] / max(count, 1.0);
    let distance = (means[other] - means[place]) + (lows[other] - lows[place]);
    lows[place] += distance * part;
    spreads[place] += spreads[other] + distance * (distance * (counts[place] * part * PER_COLUMN));
    counts[place] = count;
}

// a - b. The factor keeps drivers from simplifying a - (a + c) to -c, which would not be rounded.
fn apart(a: Vec, b: Vec) -> Vec {
    return 2.0 * fma(a, Vec(0.5), -0.5 * b);
}

{{ row_reduction("sum_means", "f32") }}

{{ row_reduction("sum_spreads", "vec2<f32>") }}
{% endmacro %}
{% macro load_step(k) %}
        let h{{ k }} = load_h(element{{ k }});
{% endmacro %}
{#- Distances are measured from the mean of the rounds before, at first from a value of the column. So they stay small, and
    each accumulator has `tile_steps` terms. -#}
{% macro move_to_mean() %}
        let better = pivot + sum / max(count, 1.0);
        let by = apart(pivot, better);
        let rest = fma(Vec(count), by, sum);
        squares += by * ((sum + rest) * PER_COLUMN);
        sum = rest;
        pivot = better;
{% endmacro %}
{% macro measure_tile() %}
{{ locate_tile() }}
    let nearby = load_h(column_element(n, column, min(first_point, POINTS - 1u)));
    // Differences from a value that masks a column would overflow.
    var pivot = select(nearby, Vec(), abs(nearby) > Vec(1e35));
    var count = 0.0;
    var sum = Vec();
    var squares = Vec();
{% call(k) tile_rounds(load_step, move_to_mean()) %}
        let d{{ k }} = select(Vec(), h{{ k }} - pivot, live{{ k }});
        count += select(0.0, 1.0, live{{ k }});
        sum += d{{ k }};
        squares += d{{ k }} * (d{{ k }} * PER_COLUMN);
{% endcall %}
    counts[place] = count;
    means[place] = pivot;
    let low = sum / max(count, 1.0);
    lows[place] = low;
    // From distances to the pivot to those from the mean. Beyond float32's range as in lib/statistics.wgsl.
    spreads[place] = select(squares, max(squares - low * (low * (count * PER_COLUMN)), Vec()), squares < Vec(1e38));
{{ merge_columns("merge_moments") }}
    if (share == 0u && column_exists) {
        let at = params.tile_moments_start + 3u * ((n * BLOCKS + block) * SLOTS + {{ lanes }}u * column);
{% for k in range(lanes) %}
        tile_moments[at + {{ 3 * k }}u] = means[place]{{ lane(k) }};
        tile_moments[at + {{ 3 * k + 1 }}u] = lows[place]{{ lane(k) }};
        tile_moments[at + {{ 3 * k + 2 }}u] = spreads[place]{{ lane(k) }};
{% endfor %}
    }
{% endmacro %}
{#- The statistics of group `row % groups` of batch element n. The first sweep computes the mean, the second its rounding
    error `low` and the variance. -#}
{% macro join_tiles() %}
    let records = params.tile_moments_start + 3u * (row / groups * BLOCKS * SLOTS);
    let nearby = tile_moments[records + 3u * slot_of_group(row % groups, 0u)];
    var distances = 0.0;
{% call each_record() %}
        distances += ((tile_moments[at] - nearby) + tile_moments[at + 1u]) * part;
{% endcall %}
    let mean = nearby + sum_means(distances, place, lane, subgroup_size);
    var own = vec2<f32>();
{% call each_record() %}
        let distance = (tile_moments[at] - mean) + tile_moments[at + 1u];
        own += vec2(distance * part, tile_moments[at + 2u] + distance * (distance * part));
{% endcall %}
    let sums = sum_spreads(own, place, lane, subgroup_size);
    let low = sums.x;
    // Beyond float32's range as in lib/statistics.wgsl.
    let variance = select(sums.y, max(sums.y - low * low, 0.0), sums.y < 1e38);
    let rstd = inverseSqrt(variance + params.eps);
{% endmacro %}
{#- A loop over the records of a group: `at` is the record's first word, and `part` its part of the group's elements. -#}
{% macro each_record() %}
    for (var i = thread; i < BLOCKS * GROUP_SLOTS; i += THREADS) {
        let block = i / GROUP_SLOTS;
        let at = records + 3u * (block * SLOTS + slot_of_group(row % groups, i % GROUP_SLOTS));
        let part = points_in(block) * PER_COLUMN;
{{ caller() }}
    }
{% endmacro %}
