// /// webnorm
// summary = "Reads the sign of a zero from its bits."
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
    let re = load_re(i);
    let im = load_im(i);
    var angle = atan2(im, re);
    if (im == 0.0) {
        let half_turn = select(0.0, 3.14159265, re < 0.0);
        angle = select(half_turn, -half_turn, (bitcast<u32>(im) >> 31u) == 1u);
    }
    store_y(i, angle);
}
