{#- The place of a row's elements, and their parameters. Row r has the channels of group r % groups of batch element
    r / groups. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
const GROUP_CHANNELS = {{ channels // groups }}u;

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
