// /// webnorm
// summary = "A row stays in registers: one read, exact sweeps over registers, one write."
// differs = "Reads x once, up to four elements per access; short rows share a workgroup."
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
// packed = 0
// vector_width = "4 if cols % 4 == 0 else 1"
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

{% for j in range(steps) %}
    let h{{ j }} = load_row(row, {{ j }}u, thread);
{% endfor %}
{{ held_moments(held, held, steps, "pivot_of(row)") }}
{{ held_scale(steps) }}
{% for j in range(steps) %}
    store_row(row, row_exists, {{ j }}u, thread, h{{ j }}, {{ held_normalized(j, steps, held) }});
{% endfor %}

    {% endcall %}
}
