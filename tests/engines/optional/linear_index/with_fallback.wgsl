// /// webnorm
// summary = "The index of the invocation in the grid is a built-in value, else three values give it."
// [features]
// linear_indexing = "with_feature"
// [tune]
// with_feature = [1, 0]
// workgroup_size = [64]
// [default]
// with_feature = "has_linear_indexing"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(n, workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
{% if with_feature %}
    @builtin(global_invocation_index) i: u32,
{% else %}
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
{% endif %}
) {
{% if not with_feature %}
    let i = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + lane;
{% endif %}
    if (i < params.n) {
        let x = load_x(i);
        store_y(i, x * x);
    }
}
