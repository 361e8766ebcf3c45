{#- The rows of GroupNorm: row r has the channels of group r % groups of batch element r / groups. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% include "lib/op_row.wgsl" %}
{% include "lib/activations.wgsl" %}
{% if has_residual %}
{% include "lib/round.wgsl" %}
{% endif %}

const GROUP_CHANNELS = {{ channels // groups }}u;
{% set suffix = "4" if lanes == 4 else "" %}

// The place of the row's element e in x.
fn place_of(row: u32, e: u32) -> u32 {
{% if layout == "channels_first" %}
    return row * COLS + e;
{% else %}
    let first = row / groups * (channels * spatial) + row % groups * GROUP_CHANNELS;
    return first + e / GROUP_CHANNELS * channels + e % GROUP_CHANNELS;
{% endif %}
}

// The channel of the row's element e.
fn channel_of(row: u32, e: u32) -> u32 {
    return row % groups * GROUP_CHANNELS + {{ "e / spatial" if layout == "channels_first" else "e % GROUP_CHANNELS" }};
}
{% for parameter in ["weight", "bias"] if parameter in tensors | map(attribute="name") | list %}

fn {{ parameter }}_of(row: u32, e: u32) -> Vec {
{% if lanes == 1 or (layout == "channels_first" and spatial % lanes == 0) %}
    return Vec(load_{{ parameter }}(channel_of(row, e)));
{% else %}
    return Vec({% for k in range(lanes) %}load_{{ parameter }}(channel_of(row, e + {{ k }}u)){{ ", " if not loop.last }}{% endfor %});
{% endif %}
}
{% endfor %}

fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    let i = place_of(row, {{ lanes }}u * inside(j, thread));
{% if has_residual %}
    let h = rounded(load{{ suffix }}_x(i) + load{{ suffix }}_residual(i));
    return where_live(h, Vec(), j, thread);
{% else %}
    return where_live(load{{ suffix }}_x(i), Vec(), j, thread);
{% endif %}
}

// Writes step j of the row: its input h, and its output from the normalized h.
fn store_row(row: u32, row_exists: bool, j: u32, thread: u32, h: Vec, normalized: Vec) {
    if (!row_exists || !live(j, thread)) {
        return;
    }
    let e = {{ lanes }}u * access(j, thread);
    let i = place_of(row, e);
    let z = normalized{{ " * weight_of(row, e)" if has_weight }}{{ " + bias_of(row, e)" if has_bias }};
    store{{ suffix }}_y(i, {{ "activated(z)" if activation else "z" }});
{% if has_residual %}
    store{{ suffix }}_h(i, h);
{% endif %}
}
