{#- One element's gradient of a row divided by its norm, `gradient(x, dy, norm, along)`. `along` is the sum of dy * y. -#}
{% from "lib/row_norm.wgsl" import divided with context %}
{% macro gradient_function() %}
fn gradient(x: Vec, dy: Vec, norm: RowNorm, along: f32) -> Vec {
    let direction = {{ "sign(x)" if p == "1" else divided("x") }};
    let free = dy - direction * along;
    return {{ divided("select(free, dy, norm.constant)" if eps_mode == "clamp" else "free") }};
}
{% endmacro %}
