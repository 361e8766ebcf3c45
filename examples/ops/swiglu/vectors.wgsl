// /// webnorm
// summary = "Several vec4 per invocation, all loaded before the first is computed."
// differs = "16 bytes an access."
// rung = 2
// [tune]
// workgroup_size = [64, 128, 256]
// accesses = [1, 2, 4]
// [default]
// workgroup_size = "64 if software else 256"
// accesses = "4 if software else 1"
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
// per_workgroup = "workgroup_size * accesses * vector_width"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows * cols, per_workgroup)"
// ///
{% include "lib/tensors.wgsl" %}

alias Vec = {{ "vec4<f32>" if vector_width == 4 else "f32" }};

fn activation(x: Vec) -> Vec {
{% if activation == "silu" %}
    // exp of a negative number cannot overflow.
    let e = exp(-abs(x));
    return x * select(Vec(1.0), e, x < Vec()) / (1.0 + e);
{% elif activation == "gelu_tanh" %}
    // 0.5 (1 + tanh(u)) is the logistic function of 2 u. Without the clamp exp could overflow.
    let u = 0.7978845608 * (x + 0.044715 * x * x * x);
    return x / (1.0 + exp(clamp(-2.0 * u, Vec(-80.0), Vec(80.0))));
{% else %}
    return max(x, Vec());
{% endif %}
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let first = workgroup * {{ per_workgroup }}u + invocation * {{ vector_width }}u;
    let end = params.rows * cols;
{% set load = "load4" if vector_width == 4 else "load" %}
    // The index is clamped, not guarded by a branch, so that the loads can overlap.
{% for j in range(accesses) %}
    let i{{ j }} = first + {{ j * workgroup_size * vector_width }}u;
    let last{{ j }} = min(i{{ j }}, end - {{ vector_width }}u);
    let gate{{ j }} = {{ load }}_gate(last{{ j }});
    let up{{ j }} = {{ load }}_up(last{{ j }});
{% endfor %}
{% for j in range(accesses) %}
    if (i{{ j }} < end) {
        store{{ "4" if vector_width == 4 }}_y(i{{ j }}, activation(gate{{ j }}) * up{{ j }});
    }
{% endfor %}
}
