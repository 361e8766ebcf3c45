// /// webnorm
// summary = "One invocation per row."
// rung = 1
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(n, workgroup_size)"
// iterations = "k"
// [accuracy]
// serial_terms = "k"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let row = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (row >= params.n) {
        return;
    }
    var sum = 0.0;
    for (var i = 0u; i < k; i++) {
        sum += f32(load_w(row * k + i)) * load_x(i);
    }
    store_y(row, load_scale(row) * sum);
}
