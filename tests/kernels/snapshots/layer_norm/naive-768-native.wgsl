// Neighbouring invocations read memory a whole row apart, so a GPU fetches far more than it uses. A single accumulator
// adds a row's values one by one. In a long row of equal values all roundings go in the same direction, by a quarter of
// a unit on average, and the mean is off by their sum.

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

const THREADS = 1u;  // invocations per row
const STEPS = 768u;  // Vecs per invocation

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// `value` in columns that exist, `otherwise` in the others.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return value;
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    return x[params.x_start + row * COLS + access(j, thread)];
}

fn load_weight(j: u32, thread: u32) -> Vec {
    return weight[access(j, thread)];
}

fn load_bias(j: u32, thread: u32) -> Vec {
    return bias[access(j, thread)];
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

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place % THREADS;
    let row_index = workgroup * 64u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

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
    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        let y_value = affine((h - mean) * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }
}
