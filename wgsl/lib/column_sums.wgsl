{#- What is summed over rows (dweight, dbias, dresidual_bias), and how a chunk of it is stored. -#}
{% from "lib/dtype.wgsl" import chunked, shifted, word_type, per_word, encoded with context %}
{% set summed = (["dweight"] if has_weight else []) + (["dbias"] if has_bias else []) + (["dresidual_bias"] if has_residual_bias else []) %}
{#- Stands outside functions. -#}
{% macro column_stores() %}
{% for name in summed %}
{% set tensor = (tensors | selectattr("name", "eq", name) | first) %}
fn store_{{ name }}(chunk: u32, value: vec4<f32>) {
{% if chunked and not shifted %}
    {{ name }}[chunk] = {{ encoded(tensor.dtype, "value") }};
{% elif (per_word(tensor.dtype) | int) == 1 %}
{% for c in "xyzw" %}
    if (4u * chunk + {{ loop.index0 }}u < COLS) { {{ name }}[4u * chunk + {{ loop.index0 }}u] = {{ word_type(tensor.dtype) }}(value.{{ c }}); }
{% endfor %}
{% else %}
    let columns = vec4(4u * chunk) + vec4(0u, 1u, 2u, 3u);
    let bits = {{ encoded(tensor.dtype, "select(vec4(0.0), value, columns < vec4(COLS))") }};
    {{ name }}[2u * chunk] = bits.x;
    if (columns.z < COLS) { {{ name }}[2u * chunk + 1u] = bits.y; }
{% endif %}
}

{% endfor %}
{% endmacro %}
