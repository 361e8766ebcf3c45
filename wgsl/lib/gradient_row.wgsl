{#- The gradient of one row that is in registers. `row`, `thread`, `place`, `lane` and `subgroup_size` are in scope, and
    the row's `mean`, `low` and `rstd`. -#}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/park.wgsl" import weight_waits, weight_again with context %}
{#- The tensors that are read for every row. -#}
{% set streams = ["x", "dy"] + (["dh"] if has_dh else []) %}
{% macro load_streams(row) %}
{% for j in range(steps) %}
{% for name in streams %}
        let {{ name ~ j }} = load_{{ name }}({{ row }}, {{ j }}u, thread);
{% endfor %}
{% endfor %}
{% endmacro %}
{% from "lib/moments.wgsl" import held_scale, held_normalized with context %}
{#- Whether x̂ is computed from the distances behind `low`, and the number of steps with distances in registers: d0, d1, ... -#}
{% set kept = 0 if (words is defined and words) or (parked is defined and parked) else steps %}
{% set from_pivot = has_mean and not saved_stats and not (reread is defined and reread) %}
{% macro step_of_x(j) -%}
x{{ j }}
{%- endmacro %}
{% macro normalized_x(j) %}
        let xhat{{ j }} = {{ held_normalized(j, kept, step_of_x) if from_pivot else ("(x" ~ j ~ " - mean) * rstd - low_rstd" if has_mean else "x" ~ j ~ " * rstd") }};
{% endmacro %}
{#- Text: g, `dy` of step j times the weight. `weight_held`: whether weight0, weight1, ... are in registers as well;
    otherwise `thread` loads them. -#}
{% macro weighted(dy, j, weight_held, thread="thread") -%}
{{ dy }}{{ " * " ~ (weight_again(j) if weight_waits else ("weight" ~ j if weight_held else "load_weight(" ~ j ~ "u, " ~ thread ~ ")")) if has_weight }}
{%- endmacro %}
{% macro normalized_step(j, weight_held, thread="thread") %}
{{ normalized_x(j) }}
        let g{{ j }} = {{ weighted("dy" ~ j, j, weight_held, thread) }};
{% endmacro %}
{% macro normalized_steps(weight_held) %}
{% for j in range(steps) %}
{{ normalized_step(j, weight_held) }}
{% endfor %}
{% endmacro %}
{#- Declarations at module scope. -#}
{% macro gradient_reduction() %}
{{ row_reduction("sum_gradients", "vec2<f32>" if has_mean else "f32") }}
{% endmacro %}
{#- The sums of g * x̂ and of g, initially 0. -#}
{% macro begin_sums() %}
        var along = Vec();
{% if has_mean %}
{% if from_pivot %}
{{ held_scale(kept) }}
{% else %}
        let low_rstd = low * rstd;
{% endif %}
        var across = Vec();
{% endif %}
{% endmacro %}
{% macro add_steps() %}
{% for j in range(steps) %}
        along += g{{ j }} * xhat{{ j }};
{% if has_mean %}
        across += g{{ j }};
{% endif %}
{% endfor %}
{% endmacro %}
{#- Computes the values for `dx_of` from the sums. -#}
{% macro share_sums() %}
{% if has_mean %}
        let means = sum_gradients(vec2({{ total("along") }}, {{ total("across") }}) * PER_COLUMN, place, lane, subgroup_size);
        let slope = -means.x * rstd;
        let level = -means.y * rstd;
{% else %}
        let slope = -sum_gradients({{ total("along") }} * PER_COLUMN, place, lane, subgroup_size) * rstd;
{% endif %}
{% endmacro %}
{#- Computes the values for `dx_of` if the sums were reduced with the row's moments. The mean of g * x̂ equals
    (mean of g * (x - mean) minus `low` times the mean of g) times rstd. -#}
{% macro share_early_sums() %}
        let slope = (low * rstd * means.y - sums.z * gain) * rstd;
        let level = -means.y * rstd;
{% endmacro %}
{% macro dx_of(j) -%}
g{{ j }} * rstd + (xhat{{ j }} * slope{{ " + level" if has_mean }}){{ " + dh" ~ j if has_dh }}
{%- endmacro %}
