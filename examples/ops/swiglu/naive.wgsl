// /// webnorm
// summary = "One invocation per element."
// rung = 1
// [tune]
// workgroup_size = [64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows * cols, workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

fn activation(x: f32) -> f32 {
{% if activation == "silu" %}
    // exp of a negative number cannot overflow.
    let e = exp(-abs(x));
    return x * select(1.0, e, x < 0.0) / (1.0 + e);
{% elif activation == "gelu_tanh" %}
    // 0.5 (1 + tanh(u)) is the logistic function of 2 u. Without the clamp exp could overflow.
    let u = 0.7978845608 * (x + 0.044715 * x * x * x);
    return x / (1.0 + exp(clamp(-2.0 * u, -80.0, 80.0)));
{% else %}
    return max(x, 0.0);
{% endif %}
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let i = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (i >= params.rows * cols) {
        return;
    }
    store_y(i, activation(load_gate(i)) * load_up(i));
}
