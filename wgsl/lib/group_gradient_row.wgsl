{#- The rows of GroupNorm's gradient: row r has the channels of group r % groups of batch element r / groups. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% include "lib/op_row.wgsl" %}
{% include "lib/group_gradient_values.wgsl" %}
{% include "lib/group_place.wgsl" %}

fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    return where_live(load_h(place_of(row, {{ lanes }}u * inside(j, thread))), Vec(), j, thread);
}

fn weight_at(row: u32, j: u32, thread: u32) -> Vec {
    return {{ "weight_of(row, " ~ lanes ~ "u * inside(j, thread))" if has_weight else "Vec(1.0)" }};
}

// The gradient of z = xhat * weight + bias.
fn dz_of_row(row: u32, j: u32, thread: u32, xhat: Vec) -> Vec {
    let e = {{ lanes }}u * inside(j, thread);
    let bias = {{ "bias_of(row, e)" if has_bias else "Vec()" }};
    return where_live(load_dz(place_of(row, e), xhat, weight_at(row, j, thread), bias), Vec(), j, thread);
}

fn store_dx_of_row(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    if (row_exists && live(j, thread)) {
        write_dx(place_of(row, {{ lanes }}u * access(j, thread)), value);
    }
}
