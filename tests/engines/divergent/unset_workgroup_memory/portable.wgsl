// /// webnorm
// summary = "Sets the counts to 0 first."
// [tune]
// workgroup_size = [64]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// ///
{% include "lib/tensors.wgsl" %}

var<workgroup> counts: array<atomic<u32>, 16>;

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
    if (lane < 16u) {
        atomicStore(&counts[lane], 0u);
    }
    workgroupBarrier();
    for (var col = lane; col < cols; col += {{ workgroup_size }}u) {
        atomicAdd(&counts[load_x(row * cols + col)], 1u);
    }
    workgroupBarrier();
    if (lane < 16u) {
        store_y(row * 16u + lane, atomicLoad(&counts[lane]));
    }
}
