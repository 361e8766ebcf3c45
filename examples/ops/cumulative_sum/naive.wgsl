// /// webnorm
// summary = "One invocation per row, one running sum."
// rung = 1
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, workgroup_size)"
// iterations = "cols"
// [accuracy]
// serial_terms = "cols"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let row = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (row >= params.rows) {
        return;
    }
    let first = row * cols;
    var sum = 0.0;
    for (var i = 0u; i < cols; i++) {
        sum += load_x(first + i);
        store_y(first + i, sum);
    }
}
