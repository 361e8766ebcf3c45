{#- The rows of a gated norm's gradient. The owner of a set of rows is a head. A record of `partials` has the sums of some
    rows for all heads. If the gate is late, dy passes through the gate before it reaches the norm, otherwise after. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% from "lib/op_gradient.wgsl" import block_type with context %}
{% set vector_tensors = ["x", "z", "dy", "weight", "bias", "dx", "dz"] %}
{% set gate_late = order == "norm_first" %}
{% set suffix = "4" if lanes == 4 else "" %}
{% set sums = ([["along_xhat", "up * xhat"]] if has_weight else []) + ([["along_up", "up"]] if has_bias else []) %}
{% set row_sums_buffer = "row_sums" %}
{% include "lib/op_row.wgsl" %}
{% include "lib/activations.wgsl" %}
{{ block_type() }}

const SUMS = {{ sums | length }}u;

fn block_of(item: u32) -> Block {
    let first = item / heads;
    return Block(item % heads, first, params.partials_count, select(0u, params.rows, first < params.partials_count));
}

fn row_of(owner: u32, member: u32) -> u32 {
    return member * heads + owner;
}
{% if row_words > 0 %}

fn row_sums_of(row: u32) -> u32 {
    return params.row_sums_start + row * {{ row_words }}u;
}
{% endif %}

// The slices of a split problem run one after the other and add to the same records.
fn put_sum(block: Block, sum: u32, c: u32, value: f32) {
    let at = ((block.first * SUMS + sum) * heads + block.owner) * COLS + c;
    partials[at] = value + select(0.0, partials[at], params.partials_kept != 0u);
}

fn load_z_row(row: u32, j: u32, thread: u32) -> Vec {
    return load{{ suffix }}_z(row * COLS + {{ lanes }}u * inside(j, thread));
}

// The norm's input.
fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    let x = load{{ suffix }}_x(row * COLS + {{ lanes }}u * inside(j, thread));
    return where_live(x{{ " * activated(load_z_row(row, j, thread))" if not gate_late }}, Vec(), j, thread);
}

fn load_dy_row(row: u32, j: u32, thread: u32) -> Vec {
    return where_live(load{{ suffix }}_dy(row * COLS + {{ lanes }}u * inside(j, thread)), Vec(), j, thread);
}

fn upstream(row: u32, j: u32, thread: u32, xhat: Vec, dy: Vec) -> Vec {
    return dy{{ " * activated(load_z_row(row, j, thread))" if gate_late }};
}

fn factor(row: u32, j: u32, thread: u32) -> Vec {
    return {{ "load" ~ suffix ~ "_weight(row % heads * COLS + " ~ lanes ~ "u * inside(j, thread))" if has_weight else "Vec(1.0)" }};
}

fn store_gradient(row: u32, row_exists: bool, j: u32, thread: u32, xhat: Vec, dy: Vec, d: Vec) {
    if (!row_exists || !live(j, thread)) {
        return;
    }
    let c = {{ lanes }}u * access(j, thread);
    let i = row * COLS + c;
    let z = load{{ suffix }}_z(i);
{% if gate_late %}
    let n = xhat{{ " * factor(row, j, thread)" if has_weight }}{{ " + load" ~ suffix ~ "_bias(row % heads * COLS + c)" if has_bias }};
    store{{ suffix }}_dx(i, d);
    store{{ suffix }}_dz(i, dy * n * activation_slope(z));
{% else %}
    store{{ suffix }}_dx(i, d * activated(z));
    store{{ suffix }}_dz(i, d * load{{ suffix }}_x(i) * activation_slope(z));
{% endif %}
}
