{#- The rows of GroupNorm: row r has the channels of group r % groups of batch element r / groups. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% include "lib/op_row.wgsl" %}
{% include "lib/group_norm_values.wgsl" %}
{% include "lib/group_place.wgsl" %}

fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    return where_live(load_h(place_of(row, {{ lanes }}u * inside(j, thread))), Vec(), j, thread);
}

// The normalized elements of step j, times the weight, plus the bias.
fn with_parameters(row: u32, j: u32, thread: u32, normalized: Vec) -> Vec {
    let e = {{ lanes }}u * inside(j, thread);
    return normalized{{ " * weight_of(row, e)" if has_weight }}{{ " + bias_of(row, e)" if has_bias }};
}

// Writes step j of the row: its input h, and the activation of z.
fn store_step(row: u32, row_exists: bool, j: u32, thread: u32, h: Vec, z: Vec) {
    if (row_exists && live(j, thread)) {
        store_values(place_of(row, {{ lanes }}u * access(j, thread)), h, z);
    }
}

fn store_row(row: u32, row_exists: bool, j: u32, thread: u32, h: Vec, normalized: Vec) {
    store_step(row, row_exists, j, thread, h, with_parameters(row, j, thread, normalized));
}
{% if vector_width == 8 %}

// Steps j and j + 1, which share an access.
fn load_pair(row: u32, j: u32, thread: u32) -> mat2x4<f32> {
    let pair = load_pair_of_h(place_of(row, 8u * pair_inside(j, thread)));
    return mat2x4<f32>(where_live(pair[0], Vec(), j, thread), where_live(pair[1], Vec(), j + 1u, thread));
}

fn store_pair(row: u32, row_exists: bool, j: u32, thread: u32, h: mat2x4<f32>, low: Vec, high: Vec) {
    if (row_exists && live(j, thread)) {
        store_pair_of_values(place_of(row, 4u * access(j, thread)), h, low, high);
    }
}
{% endif %}
