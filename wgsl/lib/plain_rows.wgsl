{#- Rows of an op whose tensors all have the shape (rows, cols): `load_row_NAME(row, j, thread)` of each input, with 0 in
    columns that do not exist, and `store_row_NAME(row, row_exists, j, thread, value)` of each output. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% set suffix = "4" if lanes == 4 else "" %}
{% set times = lanes ~ "u * " if lanes > 1 else "" %}
{% include "lib/op_row.wgsl" %}
{% for tensor in tensors if tensor.access == "read" %}

fn load_row_{{ tensor.name }}(row: u32, j: u32, thread: u32) -> Vec {
    return where_live(load{{ suffix }}_{{ tensor.name }}(row * COLS + {{ times }}inside(j, thread)), Vec(), j, thread);
}
{% endfor %}
{% for tensor in tensors if tensor.access == "read_write" %}

fn store_row_{{ tensor.name }}(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    if (row_exists && live(j, thread)) {
        store{{ suffix }}_{{ tensor.name }}(row * COLS + {{ times }}access(j, thread), value);
    }
}
{% endfor %}
