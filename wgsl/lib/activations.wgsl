{#- `activated(x)`, the activation of a Vec that the option `activation` chooses, and its derivative `activation_slope(x)`. -#}
{% if activation in ("silu", "sigmoid", "gelu_tanh") %}
// 1 / (1 + exp(-x)). Without the limit, exp could overflow.
fn logistic(x: Vec) -> Vec {
    return 1.0 / (1.0 + exp(min(-x, Vec(88.0))));
}

{% endif %}
{% if activation == "silu" %}
fn activated(x: Vec) -> Vec {
    return x * logistic(x);
}

fn activation_slope(x: Vec) -> Vec {
    // 1 - logistic(x) would cancel.
    return logistic(x) * (1.0 + x * logistic(-x));
}
{% elif activation == "sigmoid" %}
fn activated(x: Vec) -> Vec {
    return logistic(x);
}

fn activation_slope(x: Vec) -> Vec {
    return logistic(x) * logistic(-x);
}
{% elif activation == "gelu_tanh" %}
// 0.5 (1 + tanh(u / 2)) is the logistic function of u. Beyond 40, where it is 1 or almost 0, a cube could overflow.
fn gelu_argument(x: Vec) -> Vec {
    return 1.5957691216 * (x + 0.044715 * x * x * x);
}

fn activated(x: Vec) -> Vec {
    return x * logistic(gelu_argument(clamp(x, Vec(-40.0), Vec(40.0))));
}

fn activation_slope(x: Vec) -> Vec {
    let v = clamp(x, Vec(-40.0), Vec(40.0));
    let u = gelu_argument(v);
    return logistic(u) * (1.0 + v * logistic(-u) * 1.5957691216 * (1.0 + 0.134145 * v * v));
}
{% elif activation == "gelu" %}
// The standard normal distribution function. erfc(z) exp(z²) (1 + z / 2), for z of 0 or more, is a polynomial of
// t = 1 / (1 + z / 2). Its coefficients, by weighted least squares, have a relative error below 4.4e-8 up to z = 10. For a
// negative x the result is half of erfc(z): no nearly equal numbers are subtracted.
{% set coefficients = [
    "0.284574886", "-0.487199740", "0.278066981", "-0.026625547",
    "0.202686821", "0.243103774", "0.282375307", "0.282086418"] %}
fn normal_cdf(x: Vec) -> Vec {
    let t = 1.0 / (1.0 + 0.3535533906 * abs(x));
    var polynomial = Vec(-0.059068944);
{% for coefficient in coefficients %}
    polynomial = fma(polynomial, t, Vec({{ coefficient }}));
{% endfor %}
    let tail = 0.5 * polynomial * t * exp(-0.5 * x * x);
    return select(1.0 - tail, tail, x < Vec());
}

fn activated(x: Vec) -> Vec {
    return x * normal_cdf(x);
}

fn activation_slope(x: Vec) -> Vec {
    return normal_cdf(x) + x * (0.3989422804 * exp(-0.5 * x * x));
}
{% endif %}
