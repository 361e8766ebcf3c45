{#- Storage types. A chunk is four neighbouring elements: 16, 8 or 4 bytes. A u32 word has two float16 or bfloat16
    elements, or four elements of an 8-bit type, so that no feature is needed.
    With `vector_width` 8 two chunks of 8 bytes are one access of 16; with 2 an access is a word of two elements. -#}
{#- Columns of a Vec. -#}
{% set lanes = [vector_width, 4] | min %}
{% set components = "xyzw"[:lanes] %}
{% set chunked = lanes == 4 %}
{% set paired = vector_width == 8 %}
{#- Whether rows start in the middle of an access. -#}
{% set shifted = cols % lanes > 0 %}
{#- Text: the number of the row's last Vec. -#}
{% set last_access = "(row_shift + COLS - 1u) / " ~ lanes ~ "u" if shifted else "ACCESSES - 1u" %}
{#- The number of an invocation's j-th Vec; in a row that is split into parts, it counts from the part's begin. -#}
{% macro step(j) -%}{{ "first + " if row_parts is defined }}{{ j }}u{%- endmacro %}
{% set chunk_types = {"float32": "vec4<f32>", "float16": "vec2<u32>", "bfloat16": "vec2<u32>"} %}
{% set words_elements = {"float32": 1, "float16": 2, "bfloat16": 2} %}
{% macro chunk_type(dtype) -%}{{ chunk_types[dtype] if dtype in chunk_types else "u32" }}{%- endmacro %}
{% macro word_type(dtype) -%}{{ "f32" if dtype == "float32" else "u32" }}{%- endmacro %}
{#- Elements per word of an array. -#}
{% macro per_word(dtype) -%}{{ words_elements[dtype] if dtype in words_elements else 4 }}{%- endmacro %}
{#- Whether rows of different workgroups may share words, so that only atomics can write them. -#}
{% macro shares_words(tensor) -%}
{{ "yes" if shifted and chunked and tensor.access == "read_write" and tensor.batched and cols % (per_word(tensor.dtype) | int) }}
{%- endmacro %}
{#- Whether two rows of a workgroup with an even number of rows share a word, and exchange its halves. -#}
{% set joins_words = shifted and lanes == 2 %}
{#- Whether an access to the tensor is a pair of chunks. -#}
{% macro in_pairs(tensor) -%}
{{ "yes" if paired and tensor.dtype in ("float16", "bfloat16") and tensor.wide and (tensor.batched or tensor.access == "read") }}
{%- endmacro %}
{#- Elements of a tensor's array per access. -#}
{% macro per_access(tensor) -%}{{ 8 if in_pairs(tensor) else lanes }}{%- endmacro %}
{#- The start of the row in a tensor's array, in accesses. -#}
{% macro row_start(tensor) -%}
{% set elements = per_access(tensor) -%}
{% if elements == "1" -%}
params.{{ tensor.buffer }}_start + row * COLS
{%- else -%}
(params.{{ tensor.buffer }}_start + row * COLS) / {{ elements }}u
{%- endif %}
{%- endmacro %}
{#- The type of a tensor's array. -#}
{% macro storage(tensor) -%}
{% if tensor.name == "amax" -%}
atomic<u32>
{%- elif tensor.name == "partials" -%}
{{ "f32" if shifted or not chunked else "vec4<f32>" }}
{%- elif not tensor.wide -%}
f32
{%- elif lanes == 1 -%}
f32
{%- elif lanes == 2 -%}
{{ "u32" if tensor.dtype in ("float16", "bfloat16") else ("f32" if shifted else "vec2<f32>") }}
{%- elif in_pairs(tensor) -%}
vec4<u32>
{%- elif not shifted or (tensor.access == "read" and tensor.batched) -%}
{{ chunk_type(tensor.dtype) }}
{%- elif shares_words(tensor) -%}
atomic<u32>
{%- else -%}
{{ word_type(tensor.dtype) }}
{%- endif %}
{%- endmacro %}
{#- In SwiftShader's pack2x16float a NaN or an infinity corrupts the other half. A single element of h may be NaN or
    infinite. In y and dx whole rows are, unless a parameter was. -#}
{% set by_halves = software or has_residual %}
{#- The storage type of the norm's input, for ops that have no other than x's. -#}
{% set input_dtype = input_dtype if input_dtype is defined else dtype %}
{#- Whether the shader rounds values to float16 that it goes on computing with. -#}
{% set early_dtypes = [dtype, product_dtype] if rounds_before_weight is defined and rounds_before_weight else [] %}
{% set rounds_float16 = "float16" in early_dtypes or (input_dtype == "float16" and has_residual) %}
{#- Text that converts a chunk to vec4<f32>, and back. -#}
{% macro decoded(dtype, raw) -%}
{% set function = "unpack2x16float" if dtype == "float16" and lanes == 2 else "decode_" ~ dtype -%}
{{ raw if dtype == "float32" else function ~ "(" ~ raw ~ ")" }}
{%- endmacro %}
{% macro encoded(dtype, value) -%}
{% set function = "pack2x16float" if dtype == "float16" and lanes == 2 and not by_halves else "encode_" ~ dtype -%}
{{ value if dtype == "float32" else function ~ "(" ~ value ~ ")" }}
{%- endmacro %}
{#- Text: a Vec rounded to a storage type. -#}
{% macro rounded_to(dtype, value) -%}
{{ "round_float16(" ~ value ~ ")" if dtype == "float16" else (value if dtype == "float32" else decoded(dtype, encoded(dtype, value))) }}
{%- endmacro %}
{#- The function that `rounded_to` calls for float16. -#}
{% macro round_float16_function() %}
{% set vec = "vec" ~ lanes if lanes > 1 else "" %}
{% set floats, words = (vec ~ "<f32>", vec ~ "<u32>") if vec else ("f32", "u32") %}
// Rounds to nearest even. NVIDIA's compiler would replace unpack2x16float(pack2x16float(value)) by the value.
fn round_float16(value: {{ floats }}) -> {{ floats }} {
    let bits = bitcast<{{ words }}>(value);
    let even = (bits + 0xfffu + ((bits >> {{ vec }}(13u)) & {{ vec }}(1u))) & {{ vec }}(0xffffe000u);
    let infinite = (bits & {{ vec }}(0x80000000u)) | {{ vec }}(0x7f800000u);
    let rounded = select(even, infinite, abs(value) >= {{ vec }}(65520.0));
    // An addition to the bits of a NaN with all bits set would give -0.
    let normal = select(rounded, bits, (bits & {{ vec }}(0x7fffffffu)) > {{ vec }}(0x7f800000u));
    let small = round(value * 16777216.0) / 16777216.0;
    return select(bitcast<{{ floats }}>(normal), small, abs(value) < {{ vec }}(0.00006103515625));
}
{% endmacro %}
