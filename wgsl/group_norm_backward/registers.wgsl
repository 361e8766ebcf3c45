// /// webnorm
// summary = "A group's x and dy stay in registers: one read, one write of dx. A second dispatch sums over batch and pixels."
// differs = "Reads x and dy once for dx, up to four elements per access; dweight and dbias read them again, from cache if they fit."
// rung = 2
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// subgroups = [true, false]
// [default]
// rows_per_workgroup = [["software", [["span > 256", 1], 4]], ["threads_per_row > 32", 1], 4]
// subgroups = "has_subgroups"
// [derive]
// has_mean = 1
// packed = 0
// vector_width = "4 if (spatial if is_layout_channels_first else channels // groups) % 4 == 0 else 1"
// columns = "channels if is_layout_channels_first else channels // vector_width"
// points = "channels * spatial // (columns * vector_width)"
// [[require]]
// rule = "scalars <= 32"
// why = "x and dy of more than 32 elements per invocation do not fit registers"
// [[scratch]]
// name = "group_stats"
// words = "3 * batch * groups"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * groups, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// bindings = ["x", "dy", "weight", "bias", "dx", "group_stats"]
// [[pass]]
// entry_point = "sum_channels"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(columns, rows_per_workgroup)"
// iterations = "24 + ceil_div(batch * points, threads_per_row) + 3 * (threads_per_row // 16)"
// bindings = ["x", "dy", "weight", "bias", "dweight", "dbias", "group_stats"]
// when = "has_weight + has_bias > 0"
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(batch * points, threads_per_row)"
// ///
{% set row_elements, row_count = true, "(batch * groups)" %}
{% set vector_tensors = ["x", "dy", "dx"] %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/place.wgsl" import locate with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/dtype.wgsl" import lanes with context %}
{% from "lib/channel_tiles.wgsl" import column_functions, first_layout with context %}
{% from "lib/group_stats.wgsl" import write_group_stats, read_group_stats with context %}
{% from "lib/channel_sums.wgsl" import column_parameters, add_dz with context %}
{% include "lib/group_gradient_row.wgsl" %}

{{ moment_reductions() }}

{{ row_reduction("sum_gradients", "vec2<f32>") }}
{% macro held(j) -%}x{{ j }}{%- endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% for j in range(steps) %}
    let x{{ j }} = load_row(row, {{ j }}u, thread);
{% endfor %}
{{ held_moments(held, held, steps, "pivot_of(row)") }}
{{ held_scale(steps) }}
    var along = Vec();
    var across = Vec();
{% for j in range(steps) %}
    let xhat{{ j }} = {{ held_normalized(j, steps, held) }};
    let g{{ j }} = dz_of_row(row, {{ j }}u, thread, xhat{{ j }}) * weight_at(row, {{ j }}u, thread);
    along += g{{ j }} * (xhat{{ j }} * PER_COLUMN);
    across += g{{ j }} * PER_COLUMN;
{% endfor %}
    let means = sum_gradients(vec2({{ total("along") }}, {{ total("across") }}), place, lane, subgroup_size);
{% for j in range(steps) %}
    store_dx_of_row(row, row_exists, {{ j }}u, thread, (g{{ j }} - xhat{{ j }} * means.x - means.y) * rstd);
{% endfor %}
{{ write_group_stats("low", "row_exists") }}

    {% endcall %}
}
{% if has_weight or has_bias %}

{{ column_functions() }}
{{ row_reduction("sum_along", "Vec") }}

{{ row_reduction("sum_across", "Vec") }}

@compute @workgroup_size({{ workgroup_size }})
fn sum_channels(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let column_index = workgroup * {{ rows_per_workgroup }}u + place / THREADS;
    let column = min(column_index, COLUMNS - 1u);
{{ column_parameters() }}
    var along = Vec();
    var across = Vec();
    for (var i = thread; i < batch * POINTS; i += THREADS) {
        let n = i / POINTS;
{{ read_group_stats() }}
        let element = column_element(n, column, i % POINTS);
        let h = load_h(element);
{{ add_dz("element", "h") }}
    }
    let dweight_value = sum_along(along, place, lane, subgroup_size);
    let dbias_value = sum_across(across, place, lane, subgroup_size);
    if (thread == 0u && column_index < COLUMNS) {
{% for name, value in [("dweight", "dweight_value"), ("dbias", "dbias_value")] if {"dweight": has_weight, "dbias": has_bias}[name] %}
{% if first_layout or lanes == 1 %}
        store_{{ name }}(column, {{ total(value) }});
{% else %}
{% for k in range(lanes) %}
        store_{{ name }}({{ lanes }}u * column + {{ k }}u, {{ value }}[{{ k }}]);
{% endfor %}
{% endif %}
{% endfor %}
    }
}
{% endif %}
