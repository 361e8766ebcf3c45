// Nothing is subtracted, so nothing cancels: the plain sum of squares is stable. Each square is divided by
// the number of columns before it is added, so that values of 1e18 do not overflow.

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    y_start: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = f32;
alias Live = bool;

const THREADS = 256u;  // invocations per row
const STEPS = 3u;  // Vecs per invocation
const ACCESSES = COLS;  // Vecs per row

// Which of the row's Vecs the invocation has at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The same; past the row's last Vec it is that one.
fn inside(j: u32, thread: u32) -> u32 {
    return access(j, thread);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return access(j, thread) < ACCESSES;
}

// `value` in the columns that exist, `otherwise` in those that do not.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return value;
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let raw = x[params.x_start + row * COLS + inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn load_weight(j: u32, thread: u32) -> Vec {
    let raw = weight[inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn load_bias(j: u32, thread: u32) -> Vec {
    let raw = bias[inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = params.y_start + row * COLS + access(j, thread);
    if (row_exists) {
        y[at] = value;
    }
}

fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    return load_x(row, j, thread);
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return value;
}

// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized * load_weight(j, thread) + load_bias(j, thread);
}

var<workgroup> sum_squares_partials: array<f32, 256>;

fn sum_squares(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    let first = place - place % THREADS;
    sum_squares_partials[place] = value;
    workgroupBarrier();
    // 256 partials become 32: an invocation writes only where it alone reads.
    if (place - first < 32u) {
        value = value + sum_squares_partials[place + 32u];
        value = value + sum_squares_partials[place + 64u];
        value = value + sum_squares_partials[place + 96u];
        value = value + sum_squares_partials[place + 128u];
        value = value + sum_squares_partials[place + 160u];
        value = value + sum_squares_partials[place + 192u];
        value = value + sum_squares_partials[place + 224u];
        sum_squares_partials[place] = value;
    }
    workgroupBarrier();
    // 32 partials become 4: an invocation writes only where it alone reads.
    if (place - first < 4u) {
        value = value + sum_squares_partials[place + 4u];
        value = value + sum_squares_partials[place + 8u];
        value = value + sum_squares_partials[place + 12u];
        value = value + sum_squares_partials[place + 16u];
        value = value + sum_squares_partials[place + 20u];
        value = value + sum_squares_partials[place + 24u];
        value = value + sum_squares_partials[place + 28u];
        sum_squares_partials[place] = value;
    }
    workgroupBarrier();
    value = sum_squares_partials[first];
    value = value + sum_squares_partials[first + 1u];
    value = value + sum_squares_partials[first + 2u];
    value = value + sum_squares_partials[first + 3u];
    return value;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let subgroup_size = 1u;  // without subgroups, every invocation is one of its own
    let lane = 0u;
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place;
    let row_index = workgroup;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        squares += h * (h * PER_COLUMN);
    }
    let rstd = inverseSqrt(sum_squares(total(squares), place, lane, subgroup_size) + params.eps);
    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        let y_value = affine(h * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }

}
