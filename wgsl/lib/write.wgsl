{#- The end of a forward kernel. `row`, `row_exists`, `thread`, `place`, `lane`, `subgroup_size`, `mean`, `low` and
    `rstd` are in scope. -#}
{% from "lib/sweep.wgsl" import sweep_row with context %}
{% from "lib/direct.wgsl" import unpacked_step with context %}
{% from "lib/looped.wgsl" import looped with context %}
{% from "lib/dtype.wgsl" import step, shifted, in_pairs, joins_words, encoded, rounded_to with context %}
{% set edges = ("turn * " ~ rows_per_workgroup ~ "u + " if looped else "") ~ "place / THREADS" %}
{% macro affine(normalized, j) -%}
{{ "affine(" ~ normalized ~ ", " ~ j ~ ", thread)" if has_weight or has_bias or rounds_before_weight else normalized }}
{%- endmacro %}
{#- Text: y from the texts of a normalized Vec, the weight and the bias. With the option `rounding`, every operation
    rounds its result. -#}
{% macro scaled(normalized, weight, bias) -%}
{% if not rounds_before_weight -%}
{{ normalized }}{{ " * " ~ weight if has_weight }}{{ " + " ~ bias if has_bias }}
{%- else -%}
{% set product = rounded_to(dtype, normalized) -%}
{% set product = rounded_to(product_dtype, product ~ " * " ~ weight) if has_weight else product -%}
{{ rounded_to(product_dtype, product ~ " + " ~ bias) if has_bias else product }}
{%- endif %}
{%- endmacro %}
{% set tracks_amax = out_dtype in ("float8_e4m3fn", "float8_e5m2") %}
{% set scaling = " * row_scale" if row_scaled else (" * block_scale" if scale_block else (" * params.scale" if tracks_amax else "")) %}
{#- Text: the factor of a block, which the invocations of the block compute together. -#}
{% macro scale_of_block(y, j) -%}
scale_of_block(row, row_exists, {{ j }}, {{ y }}, thread, place, lane, subgroup_size)
{%- endmacro %}
{#- int8: a scale that maps the row's largest value to 127. A row of zeros gets the scale for 2^-100. -#}
{% macro choose_row_scale() %}
    let row_largest = bitcast<f32>(max(greatest_of_row(largest, place, lane, subgroup_size), 0x0d800000u));
    let row_scale = 127.0 / row_largest;
    if (thread == 0u && row_exists) { y_scale[params.y_scale_start + row] = row_largest / 127.0; }
{% endmacro %}
{#- float8. Most rows are below the current maximum. Reading it first avoids contention. -#}
{% macro raise_amax() %}
    let row_largest = greatest_of_row(largest, place, lane, subgroup_size);
    if (thread == 0u && row_exists && atomicLoad(&amax[0]) < row_largest) { atomicMax(&amax[0], row_largest); }
{% endmacro %}
{% macro write_stats(low="low") %}
{% if return_stats %}
    if (thread == 0u && row_exists{{ " && part == 0u" if row_parts is defined }}) {
{% if has_mean and row_parts is defined %}
        // `mean` is the first part's mean, from which the row's may be far, so the first word is rounded from the sum.
        // The cleared bit keeps drivers from simplifying (mean + low) - mean to low.
        let high = bitcast<f32>(bitcast<u32>(mean + {{ low }}) & 0xfffffffeu);
        let added = bitcast<f32>(bitcast<u32>(high - mean) & 0xfffffffeu);
        stats[params.stats_start + 3u * row] = high;
        stats[params.stats_start + 3u * row + 1u] = {{ low }} - added;
{% elif has_mean %}
        stats[params.stats_start + 3u * row] = mean;
        stats[params.stats_start + 3u * row + 1u] = {{ low }};
{% endif %}
{% if has_mean %}
        stats[params.stats_start + 3u * row + 2u] = rstd;
{% else %}
        stats[params.stats_start + row] = rstd;
{% endif %}
    }
{% endif %}
{% endmacro %}
{#- Extras: outputs in addition to y, written for some options. They have three parts, around a last loop in the kernel's
    own text. Each part is empty if the problem does not need it.

    Before the loop: the saved statistics, and for int8 a sweep that computes the row's scale. `normalized` is the text of
    the normalized `h` at step `j`, `low` is the text of the second word of the mean. -#}
{% macro begin_extras(normalized, low="low") %}
{{ write_stats(low) }}
{% if row_scaled or tracks_amax %}
    var largest = 0u;
{% endif %}
{% if row_scaled %}
    {% call sweep_row() %}
        largest = max(largest, greatest({{ affine(normalized, "j") }}, j, thread));
    {% endcall %}
{{ choose_row_scale() }}
{% endif %}
{% if scale_block %}
    var block_scale = 1.0;
{% endif %}
{% endmacro %}
{#- At each step: the store of h, for float8 the largest |y|, and for int8 in blocks the block's scale. The arguments are
    text. -#}
{% macro write_extras(j="j", h="h", y_value="y_value") %}
{% if has_residual %}
        store_h(row, row_exists, {{ j }}, thread, {{ h }});
{% endif %}
{% if tracks_amax %}
        largest = max(largest, greatest({{ y_value }}, {{ j }}, thread));
{% endif %}
{% if scale_block %}
        block_scale = {{ scale_of_block(y_value, j) }};
{% endif %}
{% endmacro %}
{#- After the loop: for float8 the largest |y| of all rows. -#}
{% macro end_extras() %}
{% if tracks_amax %}
{{ raise_amax() }}
{% endif %}
{% endmacro %}
{#- `{% call(h) write_row() %} the text of h normalized {% endcall %}` writes the whole row, by sweeps over memory. -#}
{% macro write_row(low="low") %}
{% set normalized = caller("h") | trim %}
{{ begin_extras(normalized, low) }}
    {% call sweep_row() %}
        let y_value = {{ affine(normalized, "j") }};
{{ write_extras() }}
        store_y(row, row_exists, j, thread, y_value{{ scaling }});
    {% endcall %}
{{ end_extras() }}
{% endmacro %}
{#- Stores the registers with the tensor's name and a number; the text `factor` follows each. -#}
{% macro store_steps(tensor, factor="") %}
{% set name = tensor.name %}
{% if joins_words %}
    if (thread == 0u && row_shift == 1u) {
        {{ name }}_edges[{{ edges }}] = select(0u, {{ encoded(tensor.dtype, name ~ "0" ~ factor) }} & 0xffff0000u, row_exists);
    }
    workgroupBarrier();
    let {{ name }}_edge = {{ name }}_edges[min({{ edges }} + 1u, {{ rows_per_workgroup * (2 if looped else 1) - 1 }}u)];
{% endif %}
{% for j in range(steps) %}
{{ store_access(tensor, j, factor) }}
{% endfor %}
{% endmacro %}
{#- Stores step j, together with the step before if they share an access. -#}
{% macro store_access(tensor, j, factor="") %}
{% set name, count = tensor.name, 2 if in_pairs(tensor) else 1 %}
{% if (j + 1) % count == 0 %}
    store_{{ name }}(row, row_exists, {{ step(j + 1 - count) }}, thread, {{ name ~ (j + 1 - count) ~ factor }}{{ ", " ~ name ~ j ~ factor if count > 1 }}{{ ", " ~ name ~ "_edge" if joins_words }});
{% endif %}
{% endmacro %}
{#- Prefetches weight and bias in their storage format; the values that a step takes of them. -#}
{% set early = (tensors | selectattr("name", "in", ["weight", "bias"]) | list) if parameters_first is defined and parameters_first else [] %}
{% macro fetch_parameters() %}
{% for tensor in early %}
{% for j in range(0, steps, 2 if in_pairs(tensor) else 1) %}
    let {{ tensor.name ~ j }} = {{ "load" if shifted else "fetch" }}_{{ tensor.name }}({{ step(j) }}, thread);
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro fetched_parameter(name, j) -%}
{% set tensor = early | selectattr("name", "eq", name) | first -%}
{{ name ~ j if shifted else unpacked_step(name, name ~ (j - j % (2 if in_pairs(tensor) else 1)), step(j)) }}
{%- endmacro %}
{#- `{% call(j) write_registers() %} the text of step j normalized {% endcall %}` writes the row from registers h0, h1, ... -#}
{% macro write_registers() %}
{{ write_stats() }}
{% set own_y = "unscaled" if scale_block else "y" %}
{% for j in range(steps) %}
{% if parameters_first is defined and parameters_first %}
    let {{ own_y }}{{ j }} = {{ scaled("(" ~ (caller(j) | trim) ~ ")", fetched_parameter("weight", j) if has_weight, fetched_parameter("bias", j) if has_bias) }};
{% else %}
    let {{ own_y }}{{ j }} = {{ affine(caller(j) | trim, step(j)) }};
{% endif %}
{% if scale_block %}
    let y{{ j }} = {{ own_y ~ j }} * {{ scale_of_block(own_y ~ j, step(j)) }};
{% endif %}
{% endfor %}
{% if row_scaled or tracks_amax %}
    var largest = 0u;
{% for j in range(steps) %}
    largest = max(largest, greatest(y{{ j }}, {{ step(j) }}, thread));
{% endfor %}
{{ choose_row_scale() if row_scaled else raise_amax() }}
{% endif %}
{% for tensor in tensors if tensor.name in ("h", "y") %}
{{ store_steps(tensor, scaling if tensor.name == "y" and not scale_block else "") }}
{% endfor %}
{% endmacro %}
