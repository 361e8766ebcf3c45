// /// webnorm
// summary = "One invocation per row, three sweeps over memory."
// differs = "Follows the formula directly; invocations share nothing."
// rung = 1
// layout = "row_per_invocation"
// [accuracy]
// serial_terms = "steps"
// rounded_mean = "ceil_div(steps, 4)"
// ///

// Neighbouring invocations read memory a whole row apart, so a GPU fetches far more than it uses. A single accumulator
// adds a row's values one by one. In a long row of equal values all roundings go in the same direction, by a quarter of
// a unit on average, and the mean is off by their sum.
{#- The extras are additional outputs, written for some options. Without such options they are empty. #}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import begin_extras, write_extras, end_extras, scaling with context %}
{% include "lib/norm.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // The mean of x.
    var sum = Vec();
    for (var j = 0u; j < STEPS; j++) {
        sum += load_input(row, j, thread);
    }
    let mean = total(sum) * PER_COLUMN;

    // The variance: the mean of (x - mean)².
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let d = where_live(load_input(row, j, thread) - mean, Vec(), j, thread);
        squares += d * d * PER_COLUMN;
    }
    let rstd = inverseSqrt(total(squares) + params.eps);

    // y = (x - mean) / sqrt(variance + eps)
{{ begin_extras("(h - mean) * rstd", low="0.0") }}
    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        let y_value = affine((h - mean) * rstd, j, thread);
{{ write_extras() }}
        store_y(row, row_exists, j, thread, y_value{{ scaling }});
    }
{{ end_extras() }}

    {% endcall %}
}
