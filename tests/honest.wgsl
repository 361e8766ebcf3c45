// /// webnorm
// summary = "One invocation per row, exact for any mean: the text that cheats and mistakes are made of."
// differs = "The formula as it is written, with nothing shared between invocations."
// rung = 1
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [default]
// workgroup_size = "32 if software else 64"
// [derive]
// subgroups = 0
// vector_width = "4 if packed or software else 1"
// threads_per_row = 1
// rows_per_workgroup = "workgroup_size"
// steps = "ceil_div(span, 4) if vector_width == 4 else cols"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(ceil_div(rows, rows_per_workgroup), max_workgroups)"
// iterations = "ceil_div(rows, rows_per_workgroup * max_workgroups) * (1 + 4 * min(steps, 15000))"
// [accuracy]
// serial_terms = "steps"
// ///

// Neighbouring invocations read memory a whole row apart, so a GPU fetches far more than it uses; and
// a single accumulator adds `cols` terms one after another, so its rounding grows with the row.
{% from "lib/sweep.wgsl" import sweep with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/interface.wgsl" %}


{% include "lib/row.wgsl" %}

{% include "lib/output.wgsl" %}

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
    let mean = pivot + total(sum) / f32(COLS);

    var deviations = Vec();
    var spreads = Vec();
    {% call sweep() %}
        let d = where_live(load_input(row, j, thread) - mean, Vec(), j, thread);
        deviations += d;
        spreads += d * (d * PER_COLUMN);
    {% endcall %}
    let deviation = total(deviations);
    let spread = total(spreads);
{% include "lib/statistics.wgsl" %}

    {% call(h) write_row() %}({{ h }} - mean - low) * rstd{% endcall %}

    {% endcall %}
}
