{#- A loop over the steps of a row, `{% call sweep() %} body that uses j {% endcall %}`.

    Mesa's llvmpipe ends a shader's loops without a word after 65535 iterations in all, so a long row takes
    several steps an iteration. Steps past the last are dead: their columns do not exist. -#}
{% set sweeps = 4 %}
{% set unroll = (sweeps * steps + 59999) // 60000 %}
{% macro sweep() %}
{% if unroll == 1 %}
    for (var j = 0u; j < STEPS; j++) {
{{ caller() }}
    }
{% else %}
    for (var first = 0u; first < STEPS; first += {{ unroll }}u) {
{% for k in range(unroll) %}
        {
            let j = first + {{ k }}u;
{{ caller() }}
        }
{% endfor %}
    }
{% endif %}
{% endmacro %}
