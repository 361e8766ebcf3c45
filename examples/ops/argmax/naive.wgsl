// /// webnorm
// summary = "One invocation per row."
// rung = 1
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, workgroup_size)"
// iterations = "cols"
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
    var largest = load_x(first);
    var found = 0u;
    for (var i = 1u; i < cols; i++) {
        let x = load_x(first + i);
        // Strictly larger, so that the first of equal elements stays.
        if (x > largest) {
            largest = x;
            found = i;
        }
    }
    store_indices(row, i32(found));
}
