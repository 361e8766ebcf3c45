{#- The gradient in one dispatch: `main` of the kernels `one_dispatch`. With given statistics, the sums over rows need no
    results of other workgroups. So workgroups that walk down columns run in the same dispatch as the workgroups that
    compute rows. They come first, because they take longest. -#}
{% from "lib/place.wgsl" import locate with context %}
{% from "lib/locate.wgsl" import locate_row with context %}
{% from "lib/saved.wgsl" import saved_stats as saved_stats_of_row, saved_xhat, unpack_saved with context %}
{% from "lib/gradient_row.wgsl" import load_streams, normalized_steps, gradient_reduction, begin_sums, add_steps, share_sums, dx_of with context %}
{% from "lib/column_sums.wgsl" import summed, column_stores, walk_memory, end_walk with context %}
{% from "lib/write.wgsl" import store_steps with context %}
const CHUNKS = {{ cols // 4 }}u;  // vec4 per row
const TILES = {{ column_tiles }}u;  // workgroups that walk down columns
const TILE = {{ column_chunks }}u;  // vec4 across a tile
const DOWN = {{ down }}u;  // invocations that share a column's rows

{{ saved_stats_of_row() }}

{{ gradient_reduction() }}

{{ column_stores() }}
{{ walk_memory() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
{% if capped %}
    for (var item = workgroup; item < TILES + (params.rows + {{ rows_per_workgroup - 1 }}u) / {{ rows_per_workgroup }}u; item += workgroups.x * workgroups.y) {
{% else %}
    let item = workgroup;
{% endif %}
{% if summed %}
    if (item < TILES) {
        let chunk = item * TILE + place % TILE;
        let column = min(chunk, CHUNKS - 1u);  // columns past the row are not stored
        let share = place / TILE;
{% for name in summed %}
        var {{ name }} = vec4<f32>();
{% endfor %}
        // The loads of several rows overlap.
        for (var first = share; first < params.rows; first += {{ batch }}u * DOWN) {
{% for k in range(batch) %}
            let row{{ k }} = {{ "min(first + " ~ k ~ "u * DOWN, params.rows - 1u)" if k else "first" }};
            let dy{{ k }} = load_dy(row{{ k }}, 0u, column);
{% if has_weight %}
            let x{{ k }} = load_x(row{{ k }}, 0u, column);
            let saved{{ k }} = saved_stats(row{{ k }});
{% endif %}
{% endfor %}
{% for k in range(batch) %}
            {{ "if (first + " ~ k ~ "u * DOWN < params.rows) " if k }}{
{% if tracing %}
                traced_row = row{{ k }};
{% endif %}
{% if has_weight %}
{{ unpack_saved("saved" ~ k) }}
                dweight += dy{{ k }} * ({{ saved_xhat("x" ~ k) }});
{% endif %}
{% if has_bias %}
                dbias += dy{{ k }};
{% endif %}
            }
{% endfor %}
        }
{% if tracing %}
        traced_row = traced_no_row;
{% endif %}
{{ end_walk(column_chunks, down) }}
    } else {
{% else %}
    {
{% endif %}
{{ locate_row("(item - TILES)") }}
{{ load_streams("row") }}
        let saved = saved_stats(row);
{{ unpack_saved("saved") }}
{{ begin_sums() }}
{{ normalized_steps(false) }}
{{ add_steps() }}
{{ share_sums() }}
{% for j in range(steps) %}
        let dx{{ j }} = {{ dx_of(j) }};
{% endfor %}
{{ store_steps(tensors | selectattr("name", "eq", "dx") | first) }}
{% if capped %}
        next_turn();
{% endif %}
    }
{% if capped %}
    workgroupBarrier();  // before the next item's sums
    }
{% endif %}
}
