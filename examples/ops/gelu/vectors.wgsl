// /// webnorm
// summary = "Several vec4 per invocation, all loaded before the first is computed."
// differs = "16 bytes an access."
// rung = 2
// [tune]
// workgroup_size = [64, 128, 256]
// accesses = [1, 2, 4, 8]
// [default]
// workgroup_size = "64 if software else 256"
// accesses = "4 if software else 2"
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

{% if approximation == "tanh" %}
// 0.5 (1 + tanh(u)) is the logistic function of 2 u. Without the clamp exp could overflow.
fn normal_cdf(x: Vec) -> Vec {
    let u = 0.7978845608 * (x + 0.044715 * x * x * x);
    return 1.0 / (1.0 + exp(clamp(-2.0 * u, Vec(-80.0), Vec(80.0))));
}
{% else %}
// erfc(z) exp(z²) (1 + z / 2), for z of 0 or more, is a polynomial of t = 1 / (1 + z / 2). Its coefficients,
// by weighted least squares, have a relative error below 4.4e-8 up to z = 10. For a negative x the result
// is half of erfc(z): no nearly equal numbers are subtracted.
{% set coefficients = [
    "0.284574886", "-0.487199740", "0.278066981", "-0.026625547",
    "0.202686821", "0.243103774", "0.282375307", "0.282086418"] %}
fn normal_cdf(x: Vec) -> Vec {
    let z = abs(x) * 0.7071067812;
    let t = 1.0 / (1.0 + 0.5 * z);
    var polynomial = Vec(-0.059068944);
{% for coefficient in coefficients %}
    polynomial = fma(polynomial, t, Vec({{ coefficient }}));
{% endfor %}
    let tail = 0.5 * polynomial * t * exp(-0.5 * x * x);
    return select(1.0 - tail, tail, x < Vec());
}
{% endif %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let first = workgroup * {{ per_workgroup }}u + invocation * {{ vector_width }}u;
    let end = params.rows * cols;
    // The index is clamped, not guarded by a branch, so that the loads can overlap.
{% for j in range(accesses) %}
    let i{{ j }} = first + {{ j * workgroup_size * vector_width }}u;
    let x{{ j }} = load{{ "4" if vector_width == 4 }}_x(min(i{{ j }}, end - {{ vector_width }}u));
{% endfor %}
{% for j in range(accesses) %}
    if (i{{ j }} < end) {
        store{{ "4" if vector_width == 4 }}_y(i{{ j }}, x{{ j }} * normal_cdf(x{{ j }}));
    }
{% endfor %}
}
