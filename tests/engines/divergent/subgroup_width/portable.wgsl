// /// webnorm
// summary = "Adds through workgroup memory: right for subgroups of any size, and without subgroups."
// [tune]
// workgroup_size = [8]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// ///
{% include "lib/tensors.wgsl" %}

var<workgroup> terms: array<u32, 8>;

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
    terms[lane] = load_x(row * 8u + lane);
    for (var step = 4u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) {
            terms[lane] += terms[lane + step];
        }
    }
    if (lane == 0u) {
        store_y(row, terms[0]);
    }
}
