// /// webnorm
// summary = "One invocation per row, two sweeps: maximum, sum."
// rung = 1
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, workgroup_size)"
// iterations = "2 * classes"
// [accuracy]
// serial_terms = "classes"
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
    let first = row * classes;
    var largest = load_logits(first);
    for (var i = 1u; i < classes; i++) {
        largest = max(largest, load_logits(first + i));
    }
    var sum = 0.0;
    for (var i = 0u; i < classes; i++) {
        sum += exp(load_logits(first + i) - largest);
    }
    // Subtract the logits first: the difference is exact if they are close.
    store_loss(row, log(sum) + (largest - load_logits(first + u32(load_targets(row)))));
}
