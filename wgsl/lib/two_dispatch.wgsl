{#- The gradient in two dispatches: the entry points of the kernel `two_dispatch`. An invocation's access is its chunk of
    the row, at step 0 of `thread`, for any tile or block. Past the row it repeats the last chunk, which is neither summed
    nor stored. -#}
{% from "lib/place.wgsl" import locate with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/saved.wgsl" import saved_stats as saved_stats_of_row, saved_xhat, unpack_saved with context %}
{% from "lib/column_sums.wgsl" import summed, column_stores, walk_memory, end_walk with context %}
{#- The types for the sums of one row, and of a batch of rows. -#}
{% set row_type = "vec2<f32>" if has_mean else "f32" %}
{% set batch_type = {1: "f32", 2: "vec2<f32>", 4: "vec4<f32>"}[batch * row_terms] %}
const CHUNKS = {{ cols // 4 }}u;  // vec4 per row
const TILES = {{ column_tiles }}u;  // workgroups that walk down columns
const TOGETHER = {{ rows_per_workgroup }}u;  // rows that a workgroup walks down at a time
const BLOCKS = {{ row_blocks }}u;  // workgroups of a row

{{ saved_stats_of_row() }}

{{ row_reduction("share_of_rows", batch_type) }}

{{ row_reduction("join_shares", row_type) }}

{{ column_stores() }}
{{ walk_memory() }}
{#- The norm's input, and the gradient of its output. -#}
{% macro normalized(k, weight) %}
            let xhat = {{ saved_xhat("x" ~ k) }};
            let g = dy{{ k }}{{ " * " ~ weight if has_weight }};
{% endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn down_columns(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
{% if capped %}
    for (var tile = workgroup; tile < TILES; tile += workgroups.x * workgroups.y) {
{% else %}
    let tile = workgroup;
{% endif %}
    let chunk = tile * THREADS + thread;
    let exists = chunk < CHUNKS;
    let column = min(chunk, CHUNKS - 1u);
    let share = place / THREADS;
{% if has_weight %}
    let weight = load_weight(0u, column);
{% endif %}
{% for name in summed %}
    var {{ name }} = Vec();
{% endfor %}
    // The loads of a batch of rows overlap, and so do their reductions.
    for (var first = 0u; first < params.rows; first += {{ batch }}u * TOGETHER) {
        var shares = {{ batch_type }}();
{% for k in range(batch) %}
        let index{{ k }} = first + {{ k }}u * TOGETHER + share;
        let row{{ k }} = min(index{{ k }}, params.rows - 1u);
        let x{{ k }} = load_x(row{{ k }}, 0u, column);
        let dy{{ k }} = load_dy(row{{ k }}, 0u, column);
        let saved{{ k }} = saved_stats(row{{ k }});
{% endfor %}
{% for k in range(batch) %}
        if (exists && index{{ k }} < params.rows) {
{% if tracing %}
            traced_row = row{{ k }};
{% endif %}
{{ unpack_saved("saved" ~ k) }}
{{ normalized(k, "weight") }}
{% if has_weight %}
            dweight += dy{{ k }} * xhat;
{% endif %}
{% if has_bias %}
            dbias += dy{{ k }};
{% endif %}
{% for term in ["total(g * xhat)", "total(g)"][:row_terms] %}
            shares{{ "[" ~ (k * row_terms + loop.index0) ~ "]" if batch * row_terms > 1 }} = {{ term }} * PER_COLUMN;
{% endfor %}
        }
{% endfor %}
        let found = share_of_rows(shares, place, lane, subgroup_size);
        if (thread == 0u) {
{% for k in range(batch) %}
            if (index{{ k }} < params.rows) {
                let at = (row{{ k }} * TILES + tile) * {{ row_terms }}u;
{% for term in range(row_terms) %}
                parts[at + {{ term }}u] = found{{ "[" ~ (k * row_terms + term) ~ "]" if batch * row_terms > 1 }};
{% endfor %}
            }
{% endfor %}
        }
        next_turn();
    }
{% if tracing %}
    traced_row = traced_no_row;
{% endif %}
{% if summed %}
{{ end_walk(threads_per_row, rows_per_workgroup) }}
{% endif %}
{% if capped %}
    workgroupBarrier();  // before the next tile's sums
    }
{% endif %}
}

var<workgroup> shares_of_row: array<{{ row_type }}, TOGETHER>;

@compute @workgroup_size({{ workgroup_size }})
fn along_rows(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate("subgroup_size lane" ~ (" thread" if rows_per_workgroup > 1 else "")) }}
{% if capped %}
    for (var item = workgroup; item < params.rows * BLOCKS; item += workgroups.x * workgroups.y) {
{% else %}
    let item = workgroup;
{% endif %}
    let row = item / BLOCKS;
    let begin = item % BLOCKS * {{ block_steps * workgroup_size }}u + place;
{% if tracing %}
    traced_row = row;
{% endif %}
{% for k in range(block_steps) %}
    let chunk{{ k }} = min(begin + {{ k * workgroup_size }}u, CHUNKS - 1u);
    let x{{ k }} = load_x(row, 0u, chunk{{ k }});
    let dy{{ k }} = load_dy(row, 0u, chunk{{ k }});
{% if has_dh %}
    let dh{{ k }} = load_dh(row, 0u, chunk{{ k }});
{% endif %}
{% endfor %}
    let saved = saved_stats(row);
{{ unpack_saved("saved") }}
    var own = {{ row_type }}();
    for (var tile = place; tile < TILES; tile += {{ workgroup_size }}u) {
        let at = (row * TILES + tile) * {{ row_terms }}u;
        own += {{ "vec2(parts[at], parts[at + 1u])" if has_mean else "parts[at]" }};
    }
    let share = join_shares(own, place, lane, subgroup_size);
{% if rows_per_workgroup > 1 %}
    if (thread == 0u) { shares_of_row[place / THREADS] = share; }
    workgroupBarrier();
    var joined = shares_of_row[0];
    for (var other = 1u; other < TOGETHER; other++) {
        joined += shares_of_row[other];
    }
{% else %}
    let joined = share;
{% endif %}
{% for k in range(block_steps) %}
    {
{{ normalized(k, "load_weight(0u, chunk" ~ k ~ ")") }}
        let dx_value = (g - xhat * joined{{ ".x - joined.y" if has_mean }}) * rstd{{ " + dh" ~ k if has_dh }};
        store_dx(row, begin + {{ k * workgroup_size }}u < CHUNKS, 0u, chunk{{ k }}, dx_value);
    }
{% endfor %}
{% if capped %}
    workgroupBarrier();  // before the next row's shares
        next_turn();
    }
{% endif %}
}
