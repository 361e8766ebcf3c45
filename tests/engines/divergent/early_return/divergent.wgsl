// /// webnorm
// summary = "Invocations without a column leave before the barrier."
// [tune]
// workgroup_size = [64]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// ///
{% include "lib/tensors.wgsl" %}

var<workgroup> shared_row: array<f32, {{ workgroup_size }}>;

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
    if (lane >= cols) {
        return;
    }
    shared_row[lane] = load_x(row * cols + lane);
    workgroupBarrier();
    store_y(row * cols + lane, shared_row[cols - 1u - lane]);
}
