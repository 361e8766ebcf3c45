{#- The base of kernels whose passes all work on tiles, see lib/channel_tiles.wgsl. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% include "lib/tensors.wgsl" %}

alias Vec = {{ "f32" if lanes == 1 else "vec" ~ lanes ~ "<f32>" }};
const COLS = {{ cols }}u;
const PER_COLUMN = 1.0 / f32(COLS);
const THREADS = {{ threads_per_row }}u;  // invocations per group, where parts are joined
