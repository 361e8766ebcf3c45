// /// webnorm
// summary = "A workgroup per row: vec4 in the middle and numbers at the edges, else numbers everywhere."
// [features]
// buffer_view = "with_feature"
// [tune]
// with_feature = [1, 0]
// workgroup_size = [64]
// [default]
// with_feature = "has_buffer_view"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// ///
{% set buffer_tensors = ["x", "y"] if with_feature else [] %}
{% include "lib/tensors.wgsl" %}

const THREADS = {{ workgroup_size }}u;

fn double(i: u32) {
    store_y(i, 2.0 * load_x(i));
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = workgroup_id.y * workgroups.x + workgroup_id.x;
    if (row >= params.rows) {
        return;
    }
    let begin = row * cols;
    let end = begin + cols;
{% if with_feature %}
    // The elements before the first vec4, which lies at a multiple of 16 bytes.
    let first = begin + min(cols, (16u - byte_x(begin) % 16u) % 16u / 4u);
    let last = first + (end - first) / 4u * 4u;
    for (var i = first + 4u * lane; i < last; i += 4u * THREADS) {
        store4_y(i, 2.0 * load4_x(i));
    }
    if (begin + lane < first) {
        double(begin + lane);
    }
    if (last + lane < end) {
        double(last + lane);
    }
{% else %}
    for (var i = begin + lane; i < end; i += THREADS) {
        double(i);
    }
{% endif %}
}
