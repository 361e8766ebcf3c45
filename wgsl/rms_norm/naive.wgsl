// /// webnorm
// summary = "One invocation per row, two sweeps over memory."
// differs = "Follows the formula directly; invocations share nothing."
// rung = 1
// layout = "row_per_invocation"
// [accuracy]
// serial_terms = "steps"
// ///

// Neighbouring invocations read memory a whole row apart, so a GPU fetches far more than it uses. A single accumulator
// adds a row's squares one by one, so its rounding error grows with the row.
{#- The extras are additional outputs, written for some options. Without such options they are empty. #}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import begin_extras, write_extras, end_extras, scaling with context %}
{% include "lib/norm.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // The mean of x². Each square is divided before it is added, so that values of 1e18 do not overflow.
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let value = load_input(row, j, thread);
        squares += value * value * PER_COLUMN;
    }
    let rstd = inverseSqrt(total(squares) + params.eps);

    // y = x / sqrt(mean of x² + eps)
{{ begin_extras("h * rstd") }}
    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        let y_value = affine(h * rstd, j, thread);
{{ write_extras() }}
        store_y(row, row_exists, j, thread, y_value{{ scaling }});
    }
{{ end_extras() }}

    {% endcall %}
}
