{#- A loop over the steps of a row, `{% call sweep() %} body that uses j {% endcall %}`. With h, the norm's input:
    `{% call sweep_row() %} body that uses j and h {% endcall %}`.

    A long row takes several steps per iteration. Steps past the last are dead: their columns do not exist. -#}
{% from "lib/dtype.wgsl" import decoded, encoded, chunk_type, input_dtype with context %}
{% from "lib/direct.wgsl" import unroll, load_input with context %}
{% macro sweep(begin=0) %}
{% if unroll == 1 %}
    for (var j = {{ begin }}u; j < STEPS; j++) {
{{ caller() }}
    }
{% else %}
    for (var first = {{ begin }}u; first < STEPS; first += {{ unroll }}u) {
{% for k in range(unroll) %}
        {
            let j = first + {{ k }}u;
{{ caller() }}
        }
{% endfor %}
    }
{% endif %}
{% endmacro %}
{#- The first steps of a row stay in registers, the next in workgroup memory in their storage format. The rest is read
    again each time. -#}
{% set held = held_steps if held_steps is defined else 0 %}
{% set cached = cached_steps if cached_steps is defined else 0 %}
{#- llvmpipe's compiler takes minutes for that many unrolled steps. -#}
{% set cache_loops = cached > 16 %}
{% macro row_cache() %}
{% if cached %}
// Steps of the row in workgroup memory; each invocation uses only its own.
var<workgroup> row_cache: array<{{ chunk_type(input_dtype) }}, {{ cached * workgroup_size }}>;
{% endif %}
{% endmacro %}
{% macro keep_row() %}
{% for k in range(held) %}
    let held{{ k }} = {{ load_input }}(row, {{ k }}u, thread);
{% endfor %}
{% for k in range(0 if cache_loops else cached) %}
    row_cache[{{ k * workgroup_size }}u + place] = {{ encoded(input_dtype, load_input ~ "(row, " ~ (held + k) ~ "u, thread)") }};
{% endfor %}
{% if cache_loops %}
    for (var k = 0u; k < {{ cached }}u; k++) {
        row_cache[k * {{ workgroup_size }}u + place] = {{ encoded(input_dtype, load_input ~ "(row, " ~ held ~ "u + k, thread)") }};
    }
{% endif %}
{% endmacro %}
{#- The text `now_and_then` follows every sixteenth step; in loops the text has to check for that itself. -#}
{% macro sweep_row(now_and_then="") %}
{% set body = caller() %}
{% for k in range(held if cache_loops else held + cached) %}
    {
        let j = {{ k }}u;
        let h = {{ "held" ~ k if k < held else decoded(input_dtype, "row_cache[" ~ (k - held) * workgroup_size ~ "u + place]") }};
{{ body }}
{{ now_and_then if k % 16 == 15 }}
    }
{% endfor %}
{% if cache_loops %}
    for (var k = 0u; k < {{ cached }}u; k++) {
        let j = {{ held }}u + k;
        let h = {{ decoded(input_dtype, "row_cache[k * " ~ workgroup_size ~ "u + place]") }};
{{ body }}
{{ now_and_then }}
    }
{% endif %}
{% if held + cached < steps %}
    {% call sweep(held + cached) %}
        let h = {{ load_input }}(row, j, thread);
{{ body }}
{{ now_and_then }}
    {% endcall %}
{% endif %}
{% endmacro %}
