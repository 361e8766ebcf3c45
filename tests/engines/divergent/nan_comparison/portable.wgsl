// /// webnorm
// summary = "Compares the bits as integers, where NaN is above infinity."
// [tune]
// workgroup_size = [64]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(n, workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + lane;
    if (i >= params.n) {
        return;
    }
    let bits = bitcast<i32>(load_x(i));
    store_y(i, select(0.0, 1.0, bits >= bitcast<i32>(0.5f) && bits <= 0x7f800000));
}
