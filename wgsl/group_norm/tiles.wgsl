// /// webnorm
// summary = "Workgroups take tiles of pixels and channels. Their moments of single channels are joined to groups; the last dispatch normalizes."
// differs = "Channels last, neighbouring invocations read neighbouring channels, whatever the channels of a group. Parameters are read once per invocation."
// layout = "channel_tiles"
// preference = "4 if not software and is_layout_channels_last and (channels // groups % 4 > 0 or batch * groups < 1024 and channels // groups * spatial >= 16384) else 0"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [32, 64, 128, 256]
// subgroups = [true, false]
// [default]
// threads_per_row = "32 if software else min(256, max_invocations)"
// subgroups = "has_subgroups"
// [derive]
// vector_width = "4 if (spatial if is_layout_channels_first else channels * spatial) % 4 == 0 else 1"
// workgroup_size = "threads_per_row"
// rows_per_workgroup = 1
// workgroup_bytes = "tile_size * (4 + 12 * vector_width)"
// [[scratch]]
// name = "tile_moments"
// words = "3 * blocks * slots"
// [[scratch]]
// name = "group_stats"
// words = "3 * groups"
// [[pass]]
// entry_point = "measure"
// workgroup_size = "tile_size"
// workgroup_count = "batch * column_tiles * blocks"
// iterations = "tile_steps"
// bindings = ["x", "residual", "tile_moments"]
// [[pass]]
// entry_point = "join"
// workgroup_size = "workgroup_size"
// workgroup_count = "batch * groups"
// iterations = "2 * ceil_div(blocks * slots // groups, threads_per_row) + 3 * (threads_per_row // 16)"
// bindings = ["tile_moments", "group_stats"]
// [[pass]]
// entry_point = "normalize_tiles"
// workgroup_size = "tile_size"
// workgroup_count = "batch * column_tiles * blocks"
// iterations = "tile_steps"
// bindings = ["x", "residual", "weight", "bias", "y", "h", "group_stats"]
// [accuracy]
// serial_terms = "max(tile_steps, ceil_div(blocks * slots // groups, threads_per_row))"
// ///
{% set vector_tensors = ["x", "residual", "y", "h"] %}
{% from "lib/channel_tiles.wgsl" import tile_functions, locate_tile, tile_rounds, by_channel with context %}
{% from "lib/tile_moments.wgsl" import tile_moment_functions, load_step, measure_tile, join_tiles with context %}
{% from "lib/group_stats.wgsl" import write_group_stats, read_group_stats with context %}
{% from "lib/place.wgsl" import locate with context %}
{% include "lib/tile_base.wgsl" %}
{% include "lib/group_norm_values.wgsl" %}

{{ tile_functions() }}
{{ tile_moment_functions() }}

@compute @workgroup_size({{ tile_size }})
fn measure(
    {% include "lib/tile_builtins.wgsl" %}
) {
{{ measure_tile() }}
}

@compute @workgroup_size({{ workgroup_size }})
fn join(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let row = min(workgroup, params.batch * groups - 1u);
{{ join_tiles() }}
{{ write_group_stats("low", "workgroup < params.batch * groups") }}
}

@compute @workgroup_size({{ tile_size }})
fn normalize_tiles(
    {% include "lib/tile_builtins.wgsl" %}
) {
{{ locate_tile() }}
{{ read_group_stats() }}
{% if has_weight %}
    let weight = {{ by_channel("load_weight") }};
{% endif %}
{% if has_bias %}
    let bias = {{ by_channel("load_bias") }};
{% endif %}
{% call(k) tile_rounds(load_step) %}
        if (live{{ k }} && column_exists) {
            store_values(element{{ k }}, h{{ k }}, (h{{ k }} - mean - low) * rstd{{ " * weight" if has_weight }}{{ " + bias" if has_bias }});
        }
{% endcall %}
}
