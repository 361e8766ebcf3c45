// /// webnorm
// summary = "A row stays in registers: one read, exact sweeps over registers, one write."
// differs = "Reads x once, up to eight elements per access; short rows share a workgroup."
// rung = 2
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
// vector_width = [4, 8, 1]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// sweeps = [1, 2]
// subgroups = [true, false]
// [default]
// rows_per_workgroup = [["software", [["span > 256", 1], 4]], ["threads_per_row > 32", 1], 4]
// vector_width = [["cols % 4 > 0", 1], ["cols % 8 > 0 or itemsize == 4", 4], 8]
// subgroups = "has_subgroups"
// [derive]
// packed = 0
// [[require]]
// rule = "cols % vector_width == 0"
// why = "rows must begin at multiples of vector_width elements"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "threads_per_row that is not a power of two needs subgroups and one row per workgroup"
// [[require]]
// rule = "has_mean or sweeps == 1"
// why = "sweeps 2 needs a norm with a mean: it finds the mean first and then the variance"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * rows, rows_per_workgroup)"
// iterations = "24 + 3 * (threads_per_row // 16)"
// [accuracy]
// serial_terms = "steps"
// ///
{% set row_elements, row_count = true, "(params.batch * rows)" %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% include "lib/modulated_norm_row.wgsl" %}

{{ moment_reductions() }}
{% macro held(j) -%}h{{ j }}{%- endmacro %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{% if vector_width == 8 %}
{% for j in range(0, steps, 2) %}
    let pair{{ j }} = load_pair(row, {{ j }}u, thread);
    let h{{ j }} = pair{{ j }}[0];
    let h{{ j + 1 }} = pair{{ j }}[1];
{% endfor %}
{% else %}
{% for j in range(steps) %}
    let h{{ j }} = load_row(row, {{ j }}u, thread);
{% endfor %}
{% endif %}
{{ held_moments(held, held, steps, "pivot_of(row)") }}
{{ held_scale(steps) }}
{% if vector_width == 8 %}
{% for j in range(0, steps, 2) %}
    store_pair(row, row_exists, {{ j }}u, thread, pair{{ j }}, {{ held_normalized(j, steps, held) }}, {{ held_normalized(j + 1, steps, held) }});
{% endfor %}
{% else %}
{% for j in range(steps) %}
    store_row(row, row_exists, {{ j }}u, thread, h{{ j }}, {{ held_normalized(j, steps, held) }});
{% endfor %}
{% endif %}

    {% endcall %}
}
