{#- `activated(x)`: the activation of a Vec that the option `activation` chooses. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% if activation %}
{% if activation == "gelu" %}
// erfc(z) exp(z²) (1 + z / 2), for z of 0 or more, is a polynomial of t = 1 / (1 + z / 2). Its coefficients, by weighted
// least squares, have a relative error below 4.4e-8 up to z = 10. For a negative x the result is half of erfc(z): no nearly
// equal numbers are subtracted.
{% set coefficients = [
    "0.284574886", "-0.487199740", "0.278066981", "-0.026625547",
    "0.202686821", "0.243103774", "0.282375307", "0.282086418"] %}
fn activated(x: Vec) -> Vec {
    let t = 1.0 / (1.0 + 0.3535533906 * abs(x));
    var polynomial = Vec(-0.059068944);
{% for coefficient in coefficients %}
    polynomial = fma(polynomial, t, Vec({{ coefficient }}));
{% endfor %}
    let tail = 0.5 * polynomial * t * exp(-0.5 * x * x);
    return x * select(1.0 - tail, tail, x < Vec());
}
{% else %}
fn activated(x: Vec) -> Vec {
{% if activation == "silu" %}
    let u = x;
{% else %}
    // 0.5 (1 + tanh(u / 2)) is the logistic function of u.
    let u = 1.5957691216 * (x + 0.044715 * x * x * x);
{% endif %}
    // exp of a negative number cannot overflow.
    let e = exp(-abs(u));
    return x * select(Vec(1.0), e, u < Vec()) / (1.0 + e);
}
{% endif %}
{% endif %}
