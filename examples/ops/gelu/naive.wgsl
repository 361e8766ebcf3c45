// /// webnorm
// summary = "One invocation per element; erf by a polynomial whose error float32 does not show."
// rung = 1
// [tune]
// workgroup_size = [64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows * cols, workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

{% if approximation == "tanh" %}
// 0.5 (1 + tanh(u)) is the logistic function of 2 u. Without the clamp exp could overflow.
fn normal_cdf(x: f32) -> f32 {
    let u = 0.7978845608 * (x + 0.044715 * x * x * x);
    return 1.0 / (1.0 + exp(clamp(-2.0 * u, -80.0, 80.0)));
}
{% else %}
// erfc(z) exp(z²) (1 + z / 2), for z of 0 or more, is a polynomial of t = 1 / (1 + z / 2). Its coefficients,
// by weighted least squares, have a relative error below 4.4e-8 up to z = 10. For a negative x the result
// is half of erfc(z): no nearly equal numbers are subtracted.
{% set coefficients = [
    "0.284574886", "-0.487199740", "0.278066981", "-0.026625547",
    "0.202686821", "0.243103774", "0.282375307", "0.282086418"] %}
fn normal_cdf(x: f32) -> f32 {
    let z = abs(x) * 0.7071067812;
    let t = 1.0 / (1.0 + 0.5 * z);
    var polynomial = -0.059068944;
{% for coefficient in coefficients %}
    polynomial = fma(polynomial, t, {{ coefficient }});
{% endfor %}
    let tail = 0.5 * polynomial * t * exp(-0.5 * x * x);
    return select(1.0 - tail, tail, x < 0.0);
}
{% endif %}

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
    let x = load_x(i);
    store_y(i, x * normal_cdf(x));
}
