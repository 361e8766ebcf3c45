// /// webnorm
// summary = "One invocation per row, three sweeps over memory."
// differs = "The formula as it is written, with nothing shared between invocations."
// rung = 1
// [tune]
// workgroup_size = [32, 64, 128, 256]
// hi_lo_mean = [true, false]
// [default]
// workgroup_size = "32 if software else 64"
// [derive]
// subgroups = 0
// vector_width = 1
// access_width = 1
// threads_per_row = 1
// rows_per_workgroup = "workgroup_size"
// steps = "cols"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, rows_per_workgroup)"
// [accuracy]
// serial_terms = "cols"
// rounded_mean = "not hi_lo_mean"
// ///

// Neighbouring invocations read memory a whole row apart, so a GPU fetches far more than it uses; and
// a single accumulator adds `cols` terms one after another, so its rounding grows with the row.
{% from "lib/sweep.wgsl" import sweep with context %}
{% include "lib/interface.wgsl" %}

{% set uses_pivot = 1 %}
{% include "lib/row.wgsl" %}

{% include "lib/affine.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% include "lib/locate.wgsl" %}

    let pivot = pivot_x(row);
    var sum = 0.0;
    {% call sweep() %}
        sum += where_live(load_x(row, j, thread) - pivot, Vec(), j, thread);
    {% endcall %}
    let mean = pivot + sum / f32(COLS);

    var deviation = 0.0;
    var spread = 0.0;
    {% call sweep() %}
        let d = where_live(load_x(row, j, thread) - mean, Vec(), j, thread);
        deviation += d;
        spread += d * (d * PER_COLUMN);
    {% endcall %}
{% include "lib/statistics.wgsl" %}

    {% call sweep() %}
        let normalized = (load_x(row, j, thread) - mean - low) * rstd;
        store_y(row, row_exists, j, thread, affine(normalized, j, thread));
    {% endcall %}
}
