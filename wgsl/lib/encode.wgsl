{#- Conversions between chunks and vec4<f32>, for each storage type of the problem. They round to nearest even. WGSL
    leaves the rounding of pack2x16float to the implementation, and its result beyond float16's range. -#}
{% from "lib/dtype.wgsl" import lanes, by_halves, round_float16_function, rounds_float16 with context %}
{% set dtypes = tensors | map(attribute="dtype") | unique | list %}
{% if "float16" in dtypes %}
{% if lanes == 2 %}
fn decode_float16(raw: u32) -> vec2<f32> {
    return unpack2x16float(raw);
}

fn encode_float16(value: vec2<f32>) -> u32 {
{% if by_halves %}
    return (pack2x16float(vec2(value.x, 0.0)) & 0xffffu) | pack2x16float(vec2(0.0, value.y));
{% else %}
    return pack2x16float(value);
{% endif %}
}
{% else %}
fn decode_float16(raw: vec2<u32>) -> vec4<f32> {
    return vec4(unpack2x16float(raw.x), unpack2x16float(raw.y));
}

{% if by_halves %}
fn encode_float16(value: vec4<f32>) -> vec2<u32> {
    return vec2(
        (pack2x16float(vec2(value.x, 0.0)) & 0xffffu) | pack2x16float(vec2(0.0, value.y)),
        (pack2x16float(vec2(value.z, 0.0)) & 0xffffu) | pack2x16float(vec2(0.0, value.w)),
    );
}
{% else %}
fn encode_float16(value: vec4<f32>) -> vec2<u32> {
    return vec2(pack2x16float(value.xy), pack2x16float(value.zw));
}
{% endif %}
{% endif %}

{% endif %}
{% if rounds_float16 %}
{{ round_float16_function() }}

{% endif %}
{% if "bfloat16" in dtypes %}
{% if lanes == 2 %}
fn decode_bfloat16(raw: u32) -> vec2<f32> {
    return bitcast<vec2<f32>>(vec2(raw << 16u, raw & 0xffff0000u));
}
{% else %}
fn decode_bfloat16(raw: vec2<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4(raw.x << 16u, raw.x & 0xffff0000u, raw.y << 16u, raw.y & 0xffff0000u));
}

{% endif %}

{% set vec = "vec" ~ lanes %}
{#- If all tensors are bfloat16, the lower bits are 0, and an addition has no carry. -#}
{% set wider = "float32" in dtypes or "float16" in dtypes %}
// The upper half of float32's bits, rounded to nearest even. In a NaN with all bits set, as on NVIDIA, a carry would
// give zero. As integers such NaNs are above infinity{{ ", and as unsigned integers so are the negative ones" if wider }}.
fn encode_bfloat16(value: {{ vec }}<f32>) -> {{ "u32" if lanes == 2 else "vec2<u32>" }} {
    let bits = bitcast<{{ vec }}<u32>>(min(bitcast<{{ vec }}<i32>>(value), {{ vec }}(0x7fff0000)));
    let upper = {{ "min(bits, " ~ vec ~ "(0xffff0000u))" if wider else "bits" }} + 0x7fffu + ((bits >> {{ vec }}(16u)) & {{ vec }}(1u));
    return {{ "(upper.x >> 16u) | (upper.y & 0xffff0000u)" if lanes == 2 else "vec2((upper.x >> 16u) | (upper.y & 0xffff0000u), (upper.z >> 16u) | (upper.w & 0xffff0000u))" }};
}

{% endif %}
{#- name, largest value, smallest normal, 1 / smallest denormal, dropped bits of the mantissa, exponent's bias minus
    float32's in units of the result. -#}
{% for name, largest, normal, denormals, shift, rebias in [
    ("float8_e4m3fn", "448.0", "0.015625", "512.0", 20, 960),
    ("float8_e5m2", "57344.0", "0.00006103515625", "65536.0", 21, 448),
] if name in dtypes %}
// Saturates at {{ largest }}; below {{ normal }} the steps are even.
fn encode_{{ name }}(value: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(value);
    let size = min(abs(value), vec4({{ largest }}));
    let exact = bitcast<vec4<u32>>(size);
    let even = exact + vec4({{ 2 ** (shift - 1) - 1 }}u) + ((exact >> vec4({{ shift }}u)) & vec4(1u));
    let normal = (even >> vec4({{ shift }}u)) - {{ rebias }}u;
    let small = vec4<u32>(round(size * {{ denormals }}));
    let nan = (bits & vec4(0x7fffffffu)) > vec4(0x7f800000u);
    let code = select(select(normal, small, size < vec4({{ normal }})), vec4(0x7fu), nan);
    let signed = code | ((bits >> vec4(24u)) & vec4(0x80u));
    return signed.x | (signed.y << 8u) | (signed.z << 16u) | (signed.w << 24u);
}

{% endfor %}
{% if "int8" in dtypes %}
fn encode_int8(value: vec4<f32>) -> u32 {
    let code = bitcast<vec4<u32>>(vec4<i32>(clamp(round(value), vec4(-127.0), vec4(127.0)))) & vec4(0xffu);
    return code.x | (code.y << 8u) | (code.z << 16u) | (code.w << 24u);
}

{% endif %}
