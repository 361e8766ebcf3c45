{#- The interface of an op with an op.py: the uniform, bindings, sizes, and functions that load and store elements.

    An index counts elements of the tensor in row-major order. In a batched tensor it counts from the begin of this
    dispatch's slice, which has `params.<batch>` batch elements. `load_NAME(i)` and `store_NAME(i, value)` access one
    element as f32, i32 or u32, whatever its storage type. With `vector_width` 4 or 8 there are also `load4_NAME(i)` and
    `store4_NAME(i, value)` for the vec4 from i on. Then i must be a multiple of 4, and so must the number of elements of
    the tensor (per batch element if it is batched). Such an output has no other store, because a write of one component
    may write all four. `vector_tensors`, a list of names, restricts this to some tensors. An 8-bit input then also has
    `packed4_NAME(i)`: the word with the elements i to i + 3, for functions such as dot4I8Packed.

    `read_again`, a list of names of outputs, gives these outputs `load_NAME` and `load4_NAME` too. A pass can so read what
    an earlier pass wrote.

    With `vector_width` 8, `load8_NAME(i)` and `store8_NAME(i, value)` access the eight elements from i on as a mat2x4<f32>.
    Two-byte types then have 16 bytes per access: `raw8_NAME(i)` as they are in memory, and `unpack8_NAME(raw)`. i must be a multiple of 8, and so must the number of elements. An output
    has only one of `store_NAME`, `store4_NAME` and `store8_NAME`.

    `buffer_tensors`, a list of names of tensors with 32-bit types, declares them as `buffer` instead of an array. This
    needs WGSL's feature `buffer_view`. Such a tensor has both `load_NAME` and `load4_NAME`, or both `store_NAME` and
    `store4_NAME`, and may have any number of elements. `byte_NAME(i)` is the place of element i in the buffer, in bytes.
    It has to be a multiple of 16 in a call of `load4_NAME(i)` or `store4_NAME(i, value)`. For other types, write
    `bufferView<TYPE>(&NAME, byte_NAME(i))`.

    `atomic_scratch`, a list of names of scratch buffers, declares them as arrays of atomic<u32>. -#}
{% from "lib/cost.wgsl" import tally with context %}
{% set vectors = vector_width is defined and vector_width in (4, 8) %}
{% set in_fours = vector_tensors if vector_tensors is defined else tensors | map(attribute="name") | list %}
{% set scalar_types = {"int8": "i32", "int32": "i32", "uint8": "u32", "uint32": "u32"} %}
{% set per_word = {"float16": 2, "bfloat16": 2, "int8": 4, "uint8": 4} %}
{% set in_buffers = buffer_tensors if buffer_tensors is defined else [] %}
{% set in_atomics = atomic_scratch if atomic_scratch is defined else [] %}
{% set outputs_read = read_again if read_again is defined else [] %}
{% macro in_vectors(tensor) -%}{{ "yes" if vectors and tensor.name in in_fours and tensor.elements % 4 == 0 }}{%- endmacro %}
{#- Whether eight elements can be accessed at once, and whether one access has eight elements of two bytes. -#}
{% macro in_eights(tensor) -%}
{{ "yes" if vectors and vector_width == 8 and in_vectors(tensor) and tensor.elements % 8 == 0 and element(tensor) == "f32" }}
{%- endmacro %}
{% macro in_pairs_of_vectors(tensor) -%}{{ "yes" if in_eights(tensor) and tensor.dtype in per_word }}{%- endmacro %}
{#- Whether a tensor is declared as `buffer`. -#}
{% macro is_buffer(tensor) -%}{{ "yes" if tensor.name in in_buffers and tensor.dtype not in per_word }}{%- endmacro %}
{#- Whether elements share words that several invocations may write. -#}
{% macro is_atomic(tensor) -%}
{{ "yes" if tensor.access == "read_write" and tensor.dtype in per_word and not in_vectors(tensor) }}
{%- endmacro %}
{#- The type of an element in WGSL. -#}
{% macro element(tensor) -%}
{{ scalar_types[tensor.dtype] if tensor.dtype in scalar_types else "f32" }}
{%- endmacro %}
{#- The type of a buffer's array. -#}
{% macro storage(tensor) -%}
{% if is_atomic(tensor) -%}
atomic<u32>
{%- elif not in_vectors(tensor) -%}
{{ "u32" if tensor.dtype in per_word else element(tensor) }}
{%- elif in_pairs_of_vectors(tensor) -%}
vec4<u32>
{%- elif tensor.dtype in per_word -%}
{{ "vec2<u32>" if per_word[tensor.dtype] == 2 else "u32" }}
{%- else -%}
vec4<{{ element(tensor) }}>
{%- endif %}
{%- endmacro %}
{% for feature in features %}
enable {{ feature }};
{% endfor %}
{% for feature in requires %}
requires {{ feature }};
{% endfor %}

{% include "lib/params.wgsl" %}
{% for buffer in buffers %}
{% set held = tensors | selectattr("buffer", "equalto", buffer.name) | list %}
@group(0) @binding({{ buffer.index }}) var<storage, {{ buffer.access }}> {{ buffer.name }}: {{ "buffer" if held and is_buffer(held[0]) else "array<" ~ (storage(held[0]) if held else ("atomic<u32>" if buffer.name in in_atomics else "f32")) ~ ">" }};
{% endfor %}

{% for name, size in sizes.items() %}
const {{ name }} = {{ size }}u;
{% endfor %}
{#- The word with element `_at`. Locals begin with _, which no name of an op does, so they cannot hide a buffer. -#}
{% macro word(tensor) -%}
{% set count = per_word[tensor.dtype] -%}
{% if is_atomic(tensor) -%}
atomicLoad(&{{ tensor.buffer }}[_at / {{ count }}u])
{%- else -%}
{% if in_pairs_of_vectors(tensor) -%}
{{ tensor.buffer }}[_at / 8u][_at / 2u % 4u]
{%- else -%}
{{ tensor.buffer }}[_at / {{ 4 if in_vectors(tensor) else count }}u]{{ "[_at / 2u % 2u]" if in_vectors(tensor) and count == 2 }}
{%- endif %}
{%- endif %}
{%- endmacro %}
{% macro start(tensor) -%}
{{ "params." ~ tensor.buffer ~ "_start + " if tensor.batched }}{{ tensor.base // (32 // (8 * (per_word[tensor.dtype] if tensor.dtype in per_word else 1))) ~ "u + " if tensor.base }}_index
{%- endmacro %}
{% for tensor in tensors if is_buffer(tensor) %}

fn byte_{{ tensor.name }}(_index: u32) -> u32 {
    return 4u * ({{ start(tensor) }});
}
{% for width, type in ((1, element(tensor)), (4, "vec4<" ~ element(tensor) ~ ">")) %}
{% set suffix = (width if width > 1 else "") ~ "_" ~ tensor.name %}
{% if tensor.access == "read" %}

fn load{{ suffix }}(_index: u32) -> {{ type }} {
    {{ tally("row_reads" if tensor.batched else "parameter_reads", width ~ "u") }}
    return *bufferView<{{ type }}>(&{{ tensor.buffer }}, byte_{{ tensor.name }}(_index));
}
{% else %}

fn store{{ suffix }}(_index: u32, _value: {{ type }}) {
    {{ tally("writes", width ~ "u") }}
    *bufferView<{{ type }}>(&{{ tensor.buffer }}, byte_{{ tensor.name }}(_index)) = _value;
}
{% endif %}
{% endfor %}
{% endfor %}
{% for tensor in tensors if (tensor.access == "read" or tensor.name in outputs_read) and not is_buffer(tensor) %}
{% set type = element(tensor) %}

fn load_{{ tensor.name }}(_index: u32) -> {{ type }} {
    {{ tally("row_reads" if tensor.batched else "parameter_reads", "1u") }}
    let _at = {{ start(tensor) }};
{% if tensor.dtype == "float16" %}
    return unpack2x16float({{ word(tensor) }})[_at % 2u];
{% elif tensor.dtype == "bfloat16" %}
    let _word = {{ word(tensor) }};
    return bitcast<f32>(select(_word << 16u, _word & 0xffff0000u, _at % 2u == 1u));
{% elif tensor.dtype == "int8" %}
    return extractBits(bitcast<i32>({{ word(tensor) }}), 8u * (_at % 4u), 8u);
{% elif tensor.dtype == "uint8" %}
    return extractBits({{ word(tensor) }}, 8u * (_at % 4u), 8u);
{% else %}
    return {{ tensor.buffer }}[{{ "_at / 4u][_at % 4u" if in_vectors(tensor) else "_at" }}];
{% endif %}
}
{% if in_vectors(tensor) and tensor.dtype in ("int8", "uint8") %}

fn packed4_{{ tensor.name }}(_index: u32) -> u32 {
    {{ tally("row_reads" if tensor.batched else "parameter_reads", "4u") }}
    return {{ tensor.buffer }}[({{ start(tensor) }}) / 4u];
}
{% endif %}
{% if in_vectors(tensor) %}

fn load4_{{ tensor.name }}(_index: u32) -> vec4<{{ type }}> {
    {{ tally("row_reads" if tensor.batched else "parameter_reads", "4u") }}
{% if in_pairs_of_vectors(tensor) %}
    let _four = ({{ start(tensor) }}) / 4u;
    let _eight = {{ tensor.buffer }}[_four / 2u];
    let _raw = select(_eight.xy, _eight.zw, _four % 2u == 1u);
{% else %}
    let _raw = {{ tensor.buffer }}[({{ start(tensor) }}) / 4u];
{% endif %}
{% if tensor.dtype == "float16" %}
    return vec4(unpack2x16float(_raw.x), unpack2x16float(_raw.y));
{% elif tensor.dtype == "bfloat16" %}
    return bitcast<vec4<f32>>(vec4(_raw.x << 16u, _raw.x & 0xffff0000u, _raw.y << 16u, _raw.y & 0xffff0000u));
{% elif tensor.dtype == "int8" %}
    return vec4<i32>(vec4(_raw << 24u, _raw << 16u, _raw << 8u, _raw)) >> vec4(24u);
{% elif tensor.dtype == "uint8" %}
    return (vec4(_raw) >> vec4(0u, 8u, 16u, 24u)) & vec4(0xffu);
{% else %}
    return _raw;
{% endif %}
}
{% endif %}
{% if in_eights(tensor) %}

{% if in_pairs_of_vectors(tensor) %}
fn raw8_{{ tensor.name }}(_index: u32) -> vec4<u32> {
    {{ tally("row_reads" if tensor.batched else "parameter_reads", "8u") }}
    return {{ tensor.buffer }}[({{ start(tensor) }}) / 8u];
}

fn unpack8_{{ tensor.name }}(_raw: vec4<u32>) -> mat2x4<f32> {
{% if tensor.dtype == "float16" %}
    return mat2x4<f32>(
        vec4(unpack2x16float(_raw.x), unpack2x16float(_raw.y)),
        vec4(unpack2x16float(_raw.z), unpack2x16float(_raw.w)),
    );
{% else %}
    return mat2x4<f32>(
        bitcast<vec4<f32>>(vec4(_raw.x << 16u, _raw.x & 0xffff0000u, _raw.y << 16u, _raw.y & 0xffff0000u)),
        bitcast<vec4<f32>>(vec4(_raw.z << 16u, _raw.z & 0xffff0000u, _raw.w << 16u, _raw.w & 0xffff0000u)),
    );
{% endif %}
}

fn load8_{{ tensor.name }}(_index: u32) -> mat2x4<f32> {
    return unpack8_{{ tensor.name }}(raw8_{{ tensor.name }}(_index));
}
{% else %}
fn load8_{{ tensor.name }}(_index: u32) -> mat2x4<f32> {
    {{ tally("row_reads" if tensor.batched else "parameter_reads", "8u") }}
    let _at = ({{ start(tensor) }}) / 4u;
    return mat2x4<f32>({{ tensor.buffer }}[_at], {{ tensor.buffer }}[_at + 1u]);
}
{% endif %}
{% endif %}
{% endfor %}
{% set stored = tensors | selectattr("access", "equalto", "read_write") | map(attribute="dtype") | list %}
{% if "float16" in stored %}

{% if software %}
// SwiftShader packs a number beyond float16's range as NaN.
fn code_of_float16(value: f32) -> u32 {
    let infinite = ((bitcast<u32>(value) >> 16u) & 0x8000u) | 0x7c00u;
    return select(pack2x16float(vec2(value, 0.0)) & 0xffffu, infinite, abs(value) >= 65520.0);
}

fn encode_float16(low: f32, high: f32) -> u32 {
    return code_of_float16(low) | (code_of_float16(high) << 16u);
}
{% else %}
// Two float16 in a word. Each half is packed separately: in SwiftShader a NaN or an infinity corrupts the other half.
fn encode_float16(low: f32, high: f32) -> u32 {
    return (pack2x16float(vec2(low, 0.0)) & 0xffffu) | pack2x16float(vec2(0.0, high));
}
{% endif %}
{% endif %}
{% if "bfloat16" in stored %}

// The upper half of float32's bits, rounded to nearest even. In a NaN with all bits set a carry would give zero. As
// integers such NaNs are above infinity, and as unsigned integers so are the negative ones.
fn encode_bfloat16(low: f32, high: f32) -> u32 {
    let bits = bitcast<vec2<u32>>(min(bitcast<vec2<i32>>(vec2(low, high)), vec2(0x7fff0000)));
    let upper = min(bits, vec2(0xffff0000u)) + 0x7fffu + ((bits >> vec2(16u)) & vec2(1u));
    return (upper.x >> 16u) | (upper.y & 0xffff0000u);
}
{% endif %}
{% for tensor in tensors if tensor.access == "read_write" and not is_buffer(tensor) %}
{% set type = element(tensor) %}
{% if in_eights(tensor) %}

fn store8_{{ tensor.name }}(_index: u32, _value: mat2x4<f32>) {
    {{ tally("writes", "8u") }}
{% if in_pairs_of_vectors(tensor) %}
    let _low = _value[0];
    let _high = _value[1];
    {{ tensor.buffer }}[({{ start(tensor) }}) / 8u] = vec4(
        encode_{{ tensor.dtype }}(_low.x, _low.y), encode_{{ tensor.dtype }}(_low.z, _low.w),
        encode_{{ tensor.dtype }}(_high.x, _high.y), encode_{{ tensor.dtype }}(_high.z, _high.w),
    );
{% else %}
    let _at = ({{ start(tensor) }}) / 4u;
    {{ tensor.buffer }}[_at] = _value[0];
    {{ tensor.buffer }}[_at + 1u] = _value[1];
{% endif %}
}
{% elif in_vectors(tensor) %}

fn store4_{{ tensor.name }}(_index: u32, _value: vec4<{{ type }}>) {
    {{ tally("writes", "4u") }}
    let _at = ({{ start(tensor) }}) / 4u;
{% if tensor.dtype in ("float16", "bfloat16") %}
    {{ tensor.buffer }}[_at] = vec2(encode_{{ tensor.dtype }}(_value.x, _value.y), encode_{{ tensor.dtype }}(_value.z, _value.w));
{% elif tensor.dtype in ("int8", "uint8") %}
    let _codes = {{ "bitcast<vec4<u32>>(_value)" if type == "i32" else "_value" }} & vec4(0xffu);
    {{ tensor.buffer }}[_at] = _codes.x | (_codes.y << 8u) | (_codes.z << 16u) | (_codes.w << 24u);
{% else %}
    {{ tensor.buffer }}[_at] = _value;
{% endif %}
}
{% else %}

fn store_{{ tensor.name }}(_index: u32, _value: {{ type }}) {
    {{ tally("writes", "1u") }}
    let _at = {{ start(tensor) }};
{% if is_atomic(tensor) %}
{% set count = per_word[tensor.dtype] %}
{% set bits = 32 // count %}
    // Another invocation may write another element of the word.
    let _shift = {{ bits }}u * (_at % {{ count }}u);
{% if tensor.dtype in ("float16", "bfloat16") %}
    let _code = encode_{{ tensor.dtype }}(_value, 0.0) & 0xffffu;
{% else %}
    let _code = {{ "bitcast<u32>(_value)" if type == "i32" else "_value" }} & 0xffu;
{% endif %}
    atomicAnd(&{{ tensor.buffer }}[_at / {{ count }}u], ~({{ "0xffff" if bits == 16 else "0xff" }}u << _shift));
    atomicOr(&{{ tensor.buffer }}[_at / {{ count }}u], _code << _shift);
{% else %}
    {{ tensor.buffer }}[_at] = _value;
{% endif %}
}
{% endif %}
{% endfor %}
