{#- Rows of an op with an op.py, for the norms of the library. The header defines `cols`, the number of elements that are
    normalized together, `has_mean`, and the names of a layout. The text sets `row_elements` first, and defines after this
    file `load_row(row, j, thread) -> Vec`: the elements of step j, and 0 for elements that do not exist. With `is_l2`,
    a norm without mean divides by the root of the sum of squares instead of their mean. -#}
{% include "lib/tensors.wgsl" %}

const COLS = {{ cols }}u;
const PER_COLUMN = {{ "1.0" if is_l2 is defined and is_l2 else "1.0 / f32(COLS)" }};
{% include "lib/turns.wgsl" %}
{% include "lib/geometry.wgsl" %}
{% include "lib/pivot.wgsl" %}
