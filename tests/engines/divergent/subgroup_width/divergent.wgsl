// /// webnorm
// summary = "Takes the eight invocations of a row for one subgroup."
// [features]
// subgroups = "subgroups"
// [derive]
// subgroups = 1
// [[require]]
// rule = "has_subgroups"
// why = "it uses subgroup functions"
// [tune]
// workgroup_size = [8]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// ///
{% include "lib/tensors.wgsl" %}

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
    let sum = subgroupAdd(load_x(row * 8u + lane));
    if (lane == 0u) {
        store_y(row, sum);
    }
}
