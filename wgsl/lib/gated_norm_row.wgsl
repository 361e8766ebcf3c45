{#- The rows of a gated norm: row r is head r % heads of x's row r / heads, as in memory. With `gate_late`, the gate is
    multiplied after the norm; otherwise x is multiplied before it. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% include "lib/op_row.wgsl" %}
{% include "lib/activations.wgsl" %}
{% set gate_late = order == "norm_first" %}
{% set suffix = "4" if lanes == 4 else "" %}
{#- Text: the z of step j, for `store_row`. -#}
{% macro late_gate(j) -%}
{{ "load_gate(row, " ~ j ~ ", thread)" if gate_late else "Vec()" }}
{%- endmacro %}

fn load_gate(row: u32, j: u32, thread: u32) -> Vec {
    return load{{ suffix }}_z(row * COLS + {{ lanes }}u * inside(j, thread));
}

// The norm's input.
fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    let x = load{{ suffix }}_x(row * COLS + {{ lanes }}u * inside(j, thread));
    return where_live(x{{ " * activated(load_gate(row, j, thread))" if not gate_late }}, Vec(), j, thread);
}

// Writes step j of the row from the normalized input and, for a late gate, from z.
fn store_row(row: u32, row_exists: bool, j: u32, thread: u32, normalized: Vec, z: Vec) {
    if (!row_exists || !live(j, thread)) {
        return;
    }
    let c = {{ lanes }}u * access(j, thread);
    let p = row % heads * COLS + c;
    let n = normalized{{ " * load" ~ suffix ~ "_weight(p)" if has_weight }}{{ " + load" ~ suffix ~ "_bias(p)" if has_bias }};
    store{{ suffix }}_y(row * COLS + c, n{{ " * activated(z)" if gate_late }});
}
