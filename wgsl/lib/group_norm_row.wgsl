{#- The rows of GroupNorm: row r has the channels of group r % groups of batch element r / groups. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% include "lib/op_row.wgsl" %}
{% include "lib/group_norm_values.wgsl" %}
{% include "lib/group_place.wgsl" %}

fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    return where_live(load_h(place_of(row, {{ lanes }}u * inside(j, thread))), Vec(), j, thread);
}

// Writes step j of the row: its input h, and its output from the normalized h.
fn store_row(row: u32, row_exists: bool, j: u32, thread: u32, h: Vec, normalized: Vec) {
    if (!row_exists || !live(j, thread)) {
        return;
    }
    let e = {{ lanes }}u * access(j, thread);
    store_values(place_of(row, e), h, normalized{{ " * weight_of(row, e)" if has_weight }}{{ " + bias_of(row, e)" if has_bias }});
}
