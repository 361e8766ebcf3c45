// /// webnorm
// summary = "The values of `params` are immediates, else a uniform."
// [features]
// immediate_address_space = "with_feature"
// [tune]
// with_feature = [1, 0]
// workgroup_size = [64]
// [default]
// with_feature = "has_immediate_address_space"
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
    if (i < params.n) {
        store_y(i, params.slope * load_x(i) + params.offset);
    }
}
