// /// webnorm
// summary = "Rounds to nearest even in integers."
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
    let bits = bitcast<u32>(load_x(i));
    store_y(i, bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u));
}
