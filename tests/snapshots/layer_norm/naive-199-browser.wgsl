// Neighbouring invocations read memory a whole row apart, so a GPU fetches far more than it uses; and
// a single accumulator adds `cols` terms one after another, so its rounding grows with the row.

// `start` is the element of each per-row binding at which the slice's first row begins.
struct Params { rows: u32, start: u32, eps: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

const COLS = 199u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = f32;
alias Live = bool;

const THREADS = 1u;  // invocations per row
const STEPS = 199u;  // Vecs per invocation
const ACCESSES = COLS;

fn columns(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return columns(j, thread) < ACCESSES;
}

// `value` in the columns that exist, `otherwise` in those that do not.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return value;
}

fn row_start(row: u32) -> u32 {
    return (params.start + row * COLS);
}

// A value of the row. Sums of differences from it stay small where the row is far from 0, so that adding
// many terms one after another costs few digits (Chan, Golub and LeVeque 1983, shifted data).
fn pivot_x(row: u32) -> f32 {
    return x[row_start(row)];
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let at = columns(j, thread);
    let start = row_start(row);
    let value = x[start + at];
    return where_live(value, Vec(), j, thread);
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = columns(j, thread);
    let start = row_start(row);
    let wanted = row_exists;
    if (wanted) {
        y[start + at] = value;
    }
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return value;
}

fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized;
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let subgroup_size = 1u;  // without subgroups, every invocation is one of its own
    let lane = 0u;
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place % THREADS;
    let row_index = workgroup * 64u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    let pivot = pivot_x(row);
    var sum = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        sum += where_live(load_x(row, j, thread) - pivot, Vec(), j, thread);
    }
    let mean = pivot + sum / f32(COLS);

    var deviation = 0.0;
    var spread = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        let d = where_live(load_x(row, j, thread) - mean, Vec(), j, thread);
        deviation += d;
        spread += d * (d * PER_COLUMN);
    }
    let low = deviation / f32(COLS);
    let rstd = inverseSqrt(max(spread - low * low, 0.0) + params.eps);

    for (var j = 0u; j < STEPS; j++) {
        let normalized = (load_x(row, j, thread) - mean - low) * rstd;
        store_y(row, row_exists, j, thread, affine(normalized, j, thread));
    }
}
