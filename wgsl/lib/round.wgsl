{#- `rounded(value)`: a Vec rounded to nearest even in the problem's storage type, in float32. It works on bits, because
    NVIDIA's compiler would replace unpack2x16float(pack2x16float(value)) by the value. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% set words = "u32" if lanes == 1 else "vec4<u32>" %}
{% set integers = "i32" if lanes == 1 else "vec4<i32>" %}
fn rounded(value: Vec) -> Vec {
{% if dtype == "float16" %}
    let bits = bitcast<{{ words }}>(value);
    let even = (bits + 0xfffu + ((bits >> {{ words }}(13u)) & {{ words }}(1u))) & {{ words }}(0xffffe000u);
    let infinite = (bits & {{ words }}(0x80000000u)) | {{ words }}(0x7f800000u);
    let normal = select(even, infinite, abs(value) >= Vec(65520.0));
    // An addition to the bits of a NaN with all bits set would give -0.
    let kept = select(normal, bits, (bits & {{ words }}(0x7fffffffu)) > {{ words }}(0x7f800000u));
    let small = round(value * 16777216.0) / 16777216.0;
    return select(bitcast<Vec>(kept), small, abs(value) < Vec(0.00006103515625));
{% elif dtype == "bfloat16" %}
    // As integers, NaNs with all bits set are above infinity, and as unsigned integers so are the negative ones.
    let bits = bitcast<{{ words }}>(min(bitcast<{{ integers }}>(value), {{ integers }}(0x7fff0000)));
    let even = min(bits, {{ words }}(0xffff0000u)) + 0x7fffu + ((bits >> {{ words }}(16u)) & {{ words }}(1u));
    return bitcast<Vec>(even & {{ words }}(0xffff0000u));
{% else %}
    return value;
{% endif %}
}
