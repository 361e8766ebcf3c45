// /// webnorm
// summary = "Shifts by 32 where nothing is to be rotated."
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
    let x = load_x(i);
    let left = {{ by }}u;
    let right = {{ 32 - by | int }}u;
    store_y(i, (x << left) | (x >> right));
}
