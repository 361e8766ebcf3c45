{#- Rows of an op with an op.py, for the norms of the library. The header defines `cols`, the number of elements that are
    normalized together, `has_mean`, and the names of a layout. The text sets `row_elements` first, and defines after this
    file `load_row(row, j, thread) -> Vec`: the elements of step j, and 0 for elements that do not exist. -#}
{% from "lib/looped.wgsl" import looped with context %}
{% include "lib/tensors.wgsl" %}

const COLS = {{ cols }}u;
const PER_COLUMN = 1.0 / f32(COLS);
{% if looped %}

// The set of workgroup memory for the reductions of this row, 0 or 1.
var<private> turn: u32;

fn next_turn() {
    turn = 1u - turn;
}
{% endif %}
{% include "lib/geometry.wgsl" %}
{% include "lib/pivot.wgsl" %}
