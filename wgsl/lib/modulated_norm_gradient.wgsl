{#- The rows of a modulated norm's gradient. With x̂ the normalized x, n = x̂ * weight + bias and u = n * (1 + scale) + shift,
    the gradient of u is du = dy * act'(u). Two sums over the rows of a batch element give four gradients: the sum of
    du * x̂ and the sum of du.

    A record of `partials` belongs to a batch element. It has the sums of each row if the kernel has a pass along the rows,
    and then the partial sums of each block of rows: {{ sum_names }}. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% from "lib/op_gradient.wgsl" import block_type with context %}
{% set vector_tensors = ["x", "dy", "dh", "residual", "gate", "scale", "shift", "weight", "bias", "dx", "dresidual"] %}
{% set read_again = ["dx"] if has_gate else [] %}
{% set suffix = "4" if lanes == 4 else "" %}
{% set sums = ([["along_xhat", "up * xhat"]] if has_scale or has_weight else [])
    + ([["along_up", "up"]] if has_shift or has_bias else []) %}
{% set sum_names = (sums | map("first") | list) + (["along_gate"] if has_gate else []) %}
{% set row_sums_buffer = "partials" %}
{% include "lib/op_row.wgsl" %}
{% include "lib/activations.wgsl" %}
{{ block_type() }}

const BLOCKS = {{ blocks }}u;  // of the rows of a batch element
const SUMS = {{ sum_names | length }}u;
const ROW_WORDS = {{ row_words }}u;
const RECORD = rows * ROW_WORDS + BLOCKS * SUMS * COLS;

fn block_of(item: u32) -> Block {
    let owner = item / BLOCKS;
    return Block(owner, item % BLOCKS, BLOCKS, select(0u, rows, owner < params.batch));
}

fn row_of(owner: u32, member: u32) -> u32 {
    return owner * rows + member;
}

fn row_sums_of(row: u32) -> u32 {
    return params.partials_start + row / rows * RECORD + row % rows * ROW_WORDS;
}

// The place of the sums of a batch element's first block.
fn sums_of(owner: u32) -> u32 {
    return params.partials_start + owner * RECORD + rows * ROW_WORDS;
}

fn put_sum(block: Block, sum: u32, c: u32, value: f32) {
    partials[sums_of(block.owner) + (block.first * SUMS + sum) * COLS + c] = value;
}

fn element_of(row: u32, c: u32) -> u32 {
    return row / rows * COLS + c;
}

fn load_row(row: u32, j: u32, thread: u32) -> Vec {
    return where_live(load{{ suffix }}_x(row * COLS + {{ lanes }}u * inside(j, thread)), Vec(), j, thread);
}

fn load_dy_row(row: u32, j: u32, thread: u32) -> Vec {
    return where_live(load{{ suffix }}_dy(row * COLS + {{ lanes }}u * inside(j, thread)), Vec(), j, thread);
}

// The gradient of u.
fn upstream(row: u32, j: u32, thread: u32, xhat: Vec, dy: Vec) -> Vec {
{% if activation %}
    let c = {{ lanes }}u * inside(j, thread);
    let n = xhat{{ " * load" ~ suffix ~ "_weight(c)" if has_weight }}{{ " + load" ~ suffix ~ "_bias(c)" if has_bias }};
    let u = n{{ " * (1.0 + load" ~ suffix ~ "_scale(element_of(row, c)))" if has_scale }}{{ " + load" ~ suffix ~ "_shift(element_of(row, c))" if has_shift }};
    return dy * activation_slope(u);
{% else %}
    return dy;
{% endif %}
}

fn factor(row: u32, j: u32, thread: u32) -> Vec {
    let c = {{ lanes }}u * inside(j, thread);
    return Vec(1.0){{ " * load" ~ suffix ~ "_weight(c)" if has_weight }}{{ " * (1.0 + load" ~ suffix ~ "_scale(element_of(row, c)))" if has_scale }};
}

fn store_gradient(row: u32, row_exists: bool, j: u32, thread: u32, xhat: Vec, dy: Vec, d: Vec) {
    if (row_exists && live(j, thread)) {
        let i = row * COLS + {{ lanes }}u * access(j, thread);
        store{{ suffix }}_dx(i, d{{ " + load" ~ suffix ~ "_dh(i)" if has_dh }});
    }
}
