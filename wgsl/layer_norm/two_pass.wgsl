// /// webnorm
// summary = "A workgroup per row: the mean, then the centred variance, then the result."
// differs = "One more sweep over x than one_pass, and right for any mean."
// rung = 3
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// hi_lo_mean = [true, false]
// [default]
// threads_per_row = "8 if software else min(256, max_invocations)"
// [derive]
// subgroups = 0
// vector_width = "4 if packed else 1"
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// steps = "ceil_div(span if packed else cols, threads_per_row * vector_width)"
// [[require]]
// rule = "not software or ceil_div(rows, rows_per_workgroup * max_workgroups) * (1 + 4 * min(steps, 15000)) <= 65535"
// why = "Mesa's llvmpipe ends a shader's loops after 65535 iterations, and rows that are worked on in turn take more"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(rows, max_workgroups)"
// [accuracy]
// serial_terms = "steps"
// rounded_mean = "not hi_lo_mean"
// ///

// The second sweep measures distances from the mean, so nothing large cancels. Its by-product, the sum
// of those distances, is what the rounding of the mean took away: with hi_lo_mean it is given back.
{% from "lib/sweep.wgsl" import sweep with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/interface.wgsl" %}

{% set uses_pivot = 1 %}
{% include "lib/row.wgsl" %}

{% include "lib/output.wgsl" %}

{% from "lib/reduce.wgsl" import row_reduction with context %}
{{ row_reduction("sum_x", "f32") }}

{{ row_reduction("sum_deviations", "vec2<f32>") }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    let pivot = pivot_of(row);
    var sum = Vec();
    {% call sweep() %}
        sum += where_live(load_input(row, j, thread) - pivot, Vec(), j, thread);
    {% endcall %}
    let mean = pivot + sum_x(total(sum), place, lane, subgroup_size) / f32(COLS);

    var deviations = Vec();
    var spreads = Vec();
    {% call sweep() %}
        let d = where_live(load_input(row, j, thread) - mean, Vec(), j, thread);
        deviations += d;
        spreads += d * (d * PER_COLUMN);
    {% endcall %}
    let sums = sum_deviations(vec2(total(deviations), total(spreads)), place, lane, subgroup_size);
    let deviation = sums.x;
    let spread = sums.y;
{% include "lib/statistics.wgsl" %}

    {% call(h) write_row() %}({{ h }} - mean - low) * rstd{% endcall %}

    {% endcall %}
}
