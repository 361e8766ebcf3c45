{#- The end of a forward kernel. `row`, `row_exists`, `thread`, `place`, `lane`, `subgroup_size`, `mean`, `low` and
    `rstd` are in scope. -#}
{% from "lib/sweep.wgsl" import sweep with context %}
{% set row_scaled = out_dtype == "int8" %}
{% set tracks_amax = out_dtype in ("float8_e4m3fn", "float8_e5m2") %}
{% set scaling = " * row_scale" if row_scaled else (" * params.scale" if tracks_amax else "") %}
{#- int8: a scale that makes the row's largest value 127. A row of zeros has one too, as if it reached 2^-100. -#}
{% macro choose_row_scale() %}
    let row_largest = bitcast<f32>(max(greatest_of_row(largest, place, lane, subgroup_size), 0x0d800000u));
    let row_scale = 127.0 / row_largest;
    if (thread == 0u && row_exists) { y_scale[params.y_scale_start + row] = row_largest / 127.0; }
{% endmacro %}
{#- float8. Most rows are below what is there already; asking first keeps them from queueing. -#}
{% macro raise_amax() %}
    let row_largest = greatest_of_row(largest, place, lane, subgroup_size);
    if (thread == 0u && row_exists && atomicLoad(&amax[0]) < row_largest) { atomicMax(&amax[0], row_largest); }
{% endmacro %}
{% macro write_stats() %}
{% if return_stats %}
    if (thread == 0u && row_exists) {
{% if has_mean %}
        stats[params.stats_start + 3u * row] = mean;
        stats[params.stats_start + 3u * row + 1u] = low;
        stats[params.stats_start + 3u * row + 2u] = rstd;
{% else %}
        stats[params.stats_start + row] = rstd;
{% endif %}
    }
{% endif %}
{% endmacro %}
{#- `{% call(h) write_row() %} the text of h normalised {% endcall %}`: by sweeps over memory. -#}
{% macro write_row() %}
{% set normalized = caller("h") | trim %}
{{ write_stats() }}
{% if row_scaled or tracks_amax %}
    var largest = 0u;
{% endif %}
{% if row_scaled %}
    {% call sweep() %}
        let h = load_input(row, j, thread);
        largest = max(largest, greatest(affine({{ normalized }}, j, thread), j, thread));
    {% endcall %}
{{ choose_row_scale() }}
{% endif %}
    {% call sweep() %}
        let h = load_input(row, j, thread);
        let y_value = affine({{ normalized }}, j, thread);
{% if has_residual %}
        store_h(row, row_exists, j, thread, h);
{% endif %}
{% if tracks_amax %}
        largest = max(largest, greatest(y_value, j, thread));
{% endif %}
        store_y(row, row_exists, j, thread, y_value{{ scaling }});
    {% endcall %}
{% if tracks_amax %}
{{ raise_amax() }}
{% endif %}
{% endmacro %}
{#- `{% call(j) write_registers() %} the text of step j normalised {% endcall %}`: from registers h0, h1, ... -#}
{% macro write_registers() %}
{{ write_stats() }}
{% for j in range(steps) %}
    let y{{ j }} = affine({{ caller(j) | trim }}, {{ j }}u, thread);
{% endfor %}
{% if row_scaled or tracks_amax %}
    var largest = 0u;
{% for j in range(steps) %}
    largest = max(largest, greatest(y{{ j }}, {{ j }}u, thread));
{% endfor %}
{{ choose_row_scale() if row_scaled else raise_amax() }}
{% endif %}
{% for j in range(steps) %}
{% if has_residual %}
    store_h(row, row_exists, {{ j }}u, thread, h{{ j }});
{% endif %}
    store_y(row, row_exists, {{ j }}u, thread, y{{ j }}{{ scaling }});
{% endfor %}
{% endmacro %}
