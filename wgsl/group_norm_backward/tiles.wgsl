// /// webnorm
// summary = "Workgroups take tiles of pixels and channels. Dispatches for statistics, sums of channels, dx, dweight and dbias follow each other."
// differs = "For few long groups, and channels last whatever the channels of a group: all passes over x fill the adapter and read neighbouring elements."
// layout = "channel_tiles"
// preference = "4 if not software and (is_layout_channels_last or batch * groups < 1024 and channels // groups * spatial >= 16384) else 1"
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
// words = "3 * batch * blocks * slots"
// [[scratch]]
// name = "group_stats"
// words = "3 * batch * groups"
// [[scratch]]
// name = "tile_sums"
// words = "2 * batch * blocks * slots"
// [[scratch]]
// name = "group_means"
// words = "2 * batch * groups"
// [[pass]]
// entry_point = "measure"
// workgroup_size = "tile_size"
// workgroup_count = "batch * column_tiles * blocks"
// iterations = "tile_steps"
// bindings = ["x", "tile_moments"]
// [[pass]]
// entry_point = "join"
// workgroup_size = "workgroup_size"
// workgroup_count = "batch * groups"
// iterations = "2 * ceil_div(blocks * slots // groups, threads_per_row) + 3 * (threads_per_row // 16)"
// bindings = ["tile_moments", "group_stats"]
// [[pass]]
// entry_point = "sum_tiles"
// workgroup_size = "tile_size"
// workgroup_count = "batch * column_tiles * blocks"
// iterations = "tile_steps"
// bindings = ["x", "dy", "weight", "bias", "group_stats", "tile_sums"]
// [[pass]]
// entry_point = "join_sums"
// workgroup_size = "workgroup_size"
// workgroup_count = "batch * groups"
// iterations = "ceil_div(blocks * slots // groups, threads_per_row) + 3 * (threads_per_row // 16)"
// bindings = ["weight", "tile_sums", "group_means"]
// [[pass]]
// entry_point = "write_tiles"
// workgroup_size = "tile_size"
// workgroup_count = "batch * column_tiles * blocks"
// iterations = "tile_steps"
// bindings = ["x", "dy", "weight", "bias", "dx", "group_stats", "group_means"]
// [[pass]]
// entry_point = "finish"
// workgroup_size = "workgroup_size"
// workgroup_count = "channels"
// iterations = "ceil_div(batch * blocks * slots // channels, threads_per_row) + 3 * (threads_per_row // 16)"
// bindings = ["dweight", "dbias", "tile_sums"]
// when = "has_weight + has_bias > 0"
// [accuracy]
// serial_terms = "max(tile_steps, ceil_div(blocks * slots // groups, threads_per_row))"
// column_terms = "max(tile_steps, ceil_div(batch * blocks * slots // channels, threads_per_row))"
// ///
{% set batch_count = "batch" %}
{% set vector_tensors = ["x", "dy", "dx"] %}
{% from "lib/channel_tiles.wgsl" import tile_functions, locate_tile, tile_rounds, merge_columns, by_group with context %}
{% from "lib/tile_moments.wgsl" import tile_moment_functions, load_step, measure_tile, join_tiles, lane with context %}
{% from "lib/channel_sums.wgsl" import column_parameters, add_dz with context %}
{% from "lib/group_stats.wgsl" import write_group_stats, read_group_stats with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/place.wgsl" import locate with context %}
{% from "lib/dtype.wgsl" import lanes with context %}
{% include "lib/tile_base.wgsl" %}
{% include "lib/group_gradient_values.wgsl" %}

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
    let row = min(workgroup, batch * groups - 1u);
{{ join_tiles() }}
{{ write_group_stats("low", "workgroup < batch * groups") }}
}

// Of each invocation: the sums of dz * xhat and of dz.
var<workgroup> alongs: array<Vec, {{ tile_size }}>;
var<workgroup> acrosses: array<Vec, {{ tile_size }}>;

fn merge_sums(place: u32, other: u32) {
    alongs[place] += alongs[other];
    acrosses[place] += acrosses[other];
}

@compute @workgroup_size({{ tile_size }})
fn sum_tiles(
    {% include "lib/tile_builtins.wgsl" %}
) {
{{ locate_tile() }}
{{ read_group_stats() }}
{{ column_parameters() }}
    var along = Vec();
    var across = Vec();
{% call(k) tile_rounds(load_step) %}
        if (live{{ k }}) {
{{ add_dz("element" ~ k, "h" ~ k) }}
        }
{% endcall %}
    alongs[place] = along;
    acrosses[place] = across;
{{ merge_columns("merge_sums") }}
    if (share == 0u && column_exists) {
        let at = params.tile_sums_start + 2u * ((n * BLOCKS + block) * SLOTS + {{ lanes }}u * column);
{% for k in range(lanes) %}
        tile_sums[at + {{ 2 * k }}u] = alongs[place]{{ lane(k) }};
        tile_sums[at + {{ 2 * k + 1 }}u] = acrosses[place]{{ lane(k) }};
{% endfor %}
    }
}

{{ row_reduction("sum_gradients", "vec2<f32>") }}

// The means of g * xhat and of g over a group, where g = dz * weight.
@compute @workgroup_size({{ workgroup_size }})
fn join_sums(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let row = min(workgroup, batch * groups - 1u);
    let records = params.tile_sums_start + 2u * (row / groups * BLOCKS * SLOTS);
    var own = vec2<f32>();
    for (var i = thread; i < BLOCKS * GROUP_SLOTS; i += THREADS) {
        let slot = slot_of_group(row % groups, i % GROUP_SLOTS);
        let at = records + 2u * (i / GROUP_SLOTS * SLOTS + slot);
        own += vec2(tile_sums[at], tile_sums[at + 1u]) * ({{ "load_weight(channel_of_slot(slot)) * " if has_weight }}PER_COLUMN);
    }
    let joined = sum_gradients(own, place, lane, subgroup_size);
    if (thread == 0u && workgroup < batch * groups) {
        let at = params.group_means_start + 2u * row;
        group_means[at] = joined.x;
        group_means[at + 1u] = joined.y;
    }
}

@compute @workgroup_size({{ tile_size }})
fn write_tiles(
    {% include "lib/tile_builtins.wgsl" %}
) {
{{ locate_tile() }}
{{ read_group_stats() }}
{{ column_parameters() }}
    let mean_gx = {{ by_group("group_means", 2, 0) }};
    let mean_g = {{ by_group("group_means", 2, 1) }};
{% call(k) tile_rounds(load_step) %}
        if (live{{ k }} && column_exists) {
            let xhat = (h{{ k }} - mean - low) * rstd;
            let g = load_dz(element{{ k }}, xhat, weight, bias) * weight;
            write_dx(element{{ k }}, (g - xhat * mean_gx - mean_g) * rstd);
        }
{% endcall %}
}
{% if has_weight or has_bias %}

{{ row_reduction("sum_blocks", "vec2<f32>") }}

// A channel's sums over the batch, in the order of blocks.
@compute @workgroup_size({{ workgroup_size }})
fn finish(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let channel = min(workgroup, channels - 1u);
    var own = vec2<f32>();
    for (var i = thread; i < batch * BLOCKS * CHANNEL_SLOTS; i += THREADS) {
        let slot = slot_of_channel(channel, i % CHANNEL_SLOTS);
        let at = params.tile_sums_start + 2u * (i / CHANNEL_SLOTS * SLOTS + slot);
        own += vec2(tile_sums[at], tile_sums[at + 1u]);
    }
    let sums = sum_blocks(own, place, lane, subgroup_size);
    if (thread == 0u && workgroup < channels) {
{% if has_weight %}
        store_dweight(channel, sums.x);
{% endif %}
{% if has_bias %}
        store_dbias(channel, sums.y);
{% endif %}
    }
}
{% endif %}
