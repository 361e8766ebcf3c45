// /// webnorm
// summary = "Multiplies four numbers in one function call, else after it has unpacked them."
// [features]
// packed_4x8_integer_dot_product = "with_feature"
// [tune]
// with_feature = [1, 0]
// workgroup_size = [64]
// [default]
// with_feature = "has_packed_4x8_integer_dot_product"
// [derive]
// vector_width = 4
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + lane;
    if (row >= params.rows) {
        return;
    }
    var sum = 0;
    for (var i = 0u; i < cols; i += 4u) {
{% if with_feature %}
        sum += dot4I8Packed(packed4_x(row * cols + i), packed4_w(i));
{% else %}
        sum += dot(load4_x(row * cols + i), load4_w(i));
{% endif %}
    }
    store_y(row, sum);
}
