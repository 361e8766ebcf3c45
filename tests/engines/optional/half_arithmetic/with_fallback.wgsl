// /// webnorm
// summary = "Computes four numbers at a time in float16, else in float32."
// [features]
// shader-f16 = "with_feature"
// [tune]
// with_feature = [1, 0]
// workgroup_size = [64]
// [default]
// with_feature = "has_f16"
// [derive]
// vector_width = 4
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows * cols, 4 * workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

alias Number = {{ "f16" if with_feature else "f32" }};

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let i = (workgroup * {{ workgroup_size }}u + lane) * 4u;
    if (i >= params.rows * cols) {
        return;
    }
    let x = vec4<Number>(load4_x(i));
    store4_y(i, vec4<f32>(Number(1) + x * (Number(1) + Number(0.5) * x)));
}
