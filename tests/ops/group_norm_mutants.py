"""Mutants of the kernels of group_norm and its gradient, and the cases that have to find them."""

from __future__ import annotations

from kernel_mutants import KernelMutant

TILES, SPLIT, STREAM, BOTH = ("tiles",), ("split_row",), ("streaming",), ("registers", "tiles")
WAITING, COOPERATIVE = ("cooperative",), "lib/cooperative.wgsl"
FOLDER, BACKWARD = "group_norm", "group_norm_backward"
PLACE, COLUMNS, MOMENTS = "lib/group_place.wgsl", "lib/channel_tiles.wgsl", "lib/tile_moments.wgsl"

CASES = (
    "spatial-61",
    "spatial-1024",
    "residual-3",
    "activation=silu-3",
    "layout=channels_last-3",
    "mean-1e6",
    "mean-1e6-last",
    "channel-means",
    "ten-channels-last",
    "groups-channels-last",
    "pairs-of-pixels",
    "fours-of-pixels",
)
MUTANTS = (
    KernelMutant("channels of another group", PLACE, "row % groups * GROUP_CHANNELS + {{", "{{", STREAM),
    KernelMutant("low left out", "lib/moments.wgsl", ' - mean - low) * rstd"', ' - mean) * rstd"', STREAM),
    KernelMutant(
        "a part left out", f"{FOLDER}/split_row.wgsl", "first + {{ j }}u, thread)", "{{ j }}u, thread)", SPLIT
    ),
    KernelMutant("records of another row", COOPERATIVE, "row * {{ moments }}u * PARTS + at", "at", WAITING),
    KernelMutant(
        "low of parts left out",
        COOPERATIVE,
        " + value_of(row_words[3u * other + 1u]) - low",
        " - low",
        WAITING,
    ),
    KernelMutant(
        "distance of parts left out",
        COOPERATIVE,
        " + distance * (distance * (columns_in(other) * PER_COLUMN))",
        "",
        WAITING,
    ),
    KernelMutant("records never cleared", COOPERATIVE, "word], 0u)", "word], 1u)", WAITING),
    KernelMutant("low left out", f"{FOLDER}/tiles.wgsl", " - mean - low)", " - mean)", TILES),
    KernelMutant("bias left out", f"{FOLDER}/tiles.wgsl", '" + bias" if has_bias', '"" if has_bias', TILES),
    KernelMutant(
        "rounding of h left out",
        "lib/group_norm_values.wgsl",
        "store{{ suffix }}_h(i, h)",
        "store{{ suffix }}_h(i, z)",
        TILES,
    ),
    KernelMutant("pixels as one", COLUMNS, "slot % channels", "slot", TILES),
    KernelMutant(
        "every lane the first channel",
        COLUMNS,
        "column + {{ k }}u) / GROUP_SIZE",
        "column) / GROUP_SIZE",
        TILES,
    ),
    KernelMutant(
        "dead Vecs counted", MOMENTS, "count += select(0.0, 1.0, live{{ k }})", "count += 1.0", TILES
    ),
    KernelMutant(
        "dead Vecs summed", MOMENTS, "select(Vec(), h{{ k }} - pivot, live{{ k }})", "h{{ k }} - pivot", TILES
    ),
    KernelMutant("means not merged", MOMENTS, "lows[place] += distance * part;", "", TILES),
    KernelMutant(
        "distance of means left out",
        MOMENTS,
        "distance * (distance * (counts[place] * part * PER_COLUMN))",
        "0.0",
        TILES,
    ),
    KernelMutant(
        "spread of channels left out",
        MOMENTS,
        "tile_moments[at + 2u] + distance * (distance * part)",
        "tile_moments[at + 2u]",
        TILES,
    ),
    KernelMutant("last merge left out", COLUMNS, "other < {{ span }}u;", "other + 1u < {{ span }}u;", TILES),
    KernelMutant("all blocks full", COLUMNS, "min(BLOCK, POINTS - block * BLOCK)", "BLOCK", TILES),
)
# They fail only where a workgroup computes the records of others. On a software adapter it has to, because
# the workgroups of later parts begin after the workgroups of earlier parts have ended.
FALLBACK_MUTANTS = (
    KernelMutant(
        "missing parts left out", COOPERATIVE, "wanted < PARTS; round++", "round < 1u; round++", WAITING
    ),
    KernelMutant(
        "own part not loaded again", COOPERATIVE, "if (measured != part) {", "if (false) {", WAITING
    ),
    KernelMutant("missing parts as one's own", COOPERATIVE, "let part = wanted;", "", WAITING),
)

GRADIENT_CASES = (
    "spatial-61",
    "activation=silu-3",
    "layout=channels_last-3",
    "mean-1e6",
    "ten-channels-last",
    "groups-channels-last",
    "pairs-of-pixels",
    "fours-of-pixels",
)
VALUES, REGISTERS, TILED = (
    "lib/group_gradient_values.wgsl",
    f"{BACKWARD}/registers.wgsl",
    f"{BACKWARD}/tiles.wgsl",
)
GRADIENT_MUTANTS = (
    KernelMutant("slope left out", VALUES, " * activation_slope(xhat * weight + bias)", "", BOTH),
    KernelMutant("bias left out of the slope", VALUES, "xhat * weight + bias)", "xhat * weight)", BOTH),
    KernelMutant("low left out", "lib/channel_sums.wgsl", "- mean - low)", "- mean)", BOTH),
    KernelMutant("mean of g left out", REGISTERS, " - means.y)", ")", ("registers",)),
    KernelMutant("one batch element", REGISTERS, "i < batch * POINTS", "i < POINTS", ("registers",)),
    KernelMutant("mean of g left out", TILED, " * mean_gx - mean_g)", " * mean_gx)", TILES),
    KernelMutant("weight left out", TILED, "weight, bias) * weight;", "weight, bias);", TILES),
    KernelMutant(
        "weight of the first channel", TILED, "load_weight(channel_of_slot(slot))", "load_weight(0u)", TILES
    ),
    KernelMutant(
        "one batch element", TILED, "i < batch * BLOCKS * CHANNEL_SLOTS", "i < BLOCKS * CHANNEL_SLOTS", TILES
    ),
    KernelMutant(
        "one lane of a channel", COLUMNS, "channel * CHANNEL_SLOTS + i", "channel * CHANNEL_SLOTS", TILES
    ),
    KernelMutant("one pixel of a channel", COLUMNS, '"i * channels + channel"', '"channel"', TILES),
    KernelMutant("dead Vecs summed", TILED, "if (live{{ k }}) {", "if (true) {", TILES),
)
