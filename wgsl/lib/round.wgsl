{#- `rounded(value)`: a Vec rounded to nearest even in the problem's storage type, in float32. -#}
{% from "lib/dtype.wgsl" import lanes, round_float16_function with context %}
{% set words = "u32" if lanes == 1 else "vec4<u32>" %}
{% set integers = "i32" if lanes == 1 else "vec4<i32>" %}
{% if dtype == "float16" %}
{{ round_float16_function() }}

{% endif %}
fn rounded(value: Vec) -> Vec {
{% if dtype == "float16" %}
    return round_float16(value);
{% elif dtype == "bfloat16" %}
    // As integers, NaNs with all bits set are above infinity, and as unsigned integers so are the negative ones.
    let bits = bitcast<{{ words }}>(min(bitcast<{{ integers }}>(value), {{ integers }}(0x7fff0000)));
    let even = min(bits, {{ words }}(0xffff0000u)) + 0x7fffu + ((bits >> {{ words }}(16u)) & {{ words }}(1u));
    return bitcast<Vec>(even & {{ words }}(0xffff0000u));
{% else %}
    return value;
{% endif %}
}
