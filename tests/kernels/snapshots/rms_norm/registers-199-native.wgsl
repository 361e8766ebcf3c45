// Specialised for the number of columns and unrolled, because registers have no addresses. All loads are issued before
// the first sum, and each value has its own name. The memory traffic equals a copy's, so the two sweeps and the
// second word of the mean cost almost nothing.

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
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

const COLS = 199u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = f32;
alias Live = bool;

const THREADS = 64u;  // invocations per row
const ACCESSES = COLS;  // Vecs per row

const WHOLE_STEPS = 3u;  // those with no Vec past the row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The number of the invocation's Vec at step j, at most the number of the row's last Vec.
fn inside(j: u32, thread: u32) -> u32 {
    if (j < WHOLE_STEPS) { return access(j, thread); }
    return min(access(j, thread), ACCESSES - 1u);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    if (j < WHOLE_STEPS) { return true; }
    return access(j, thread) < ACCESSES;
}

// `value` in columns that exist, `otherwise` in the others.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return select(otherwise, value, live(j, thread));
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let raw = x[params.x_start + row * COLS + inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = params.y_start + row * COLS + access(j, thread);
    if (row_exists && live(j, thread)) {
        y[at] = value;
    }
}

var<workgroup> sum_squares_partials: array<f32, 32>;

fn sum_squares(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    if (1u < subgroup_size) {
        let other = subgroupShuffleXor(value, 1u);
        value = value + other;
    }
    if (2u < subgroup_size) {
        let other = subgroupShuffleXor(value, 2u);
        value = value + other;
    }
    if (4u < subgroup_size) {
        let other = subgroupShuffleXor(value, 4u);
        value = value + other;
    }
    if (8u < subgroup_size) {
        let other = subgroupShuffleXor(value, 8u);
        value = value + other;
    }
    if (16u < subgroup_size) {
        let other = subgroupShuffleXor(value, 16u);
        value = value + other;
    }
    if (32u < subgroup_size) {
        let other = subgroupShuffleXor(value, 32u);
        value = value + other;
    }
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_squares_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_squares_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_squares_partials[first + i];
        }
        let lanes = min(count, subgroup_size);
        if (1u < lanes) {
            let other = subgroupShuffleXor(value, 1u);
            value = value + other;
        }
        if (2u < lanes) {
            let other = subgroupShuffleXor(value, 2u);
            value = value + other;
        }
        if (4u < lanes) {
            let other = subgroupShuffleXor(value, 4u);
            value = value + other;
        }
        if (8u < lanes) {
            let other = subgroupShuffleXor(value, 8u);
            value = value + other;
        }
    }
    return value;
}

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let place = subgroup * subgroup_size + lane;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place % THREADS;
    let row_index = workgroup * 2u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    let h0 = load_x(row, 0u, thread);
    let h1 = load_x(row, 1u, thread);
    let h2 = load_x(row, 2u, thread);
    let h3 = load_x(row, 3u, thread);

    var squares = h0 * (h0 * PER_COLUMN);
    squares += h1 * (h1 * PER_COLUMN);
    squares += h2 * (h2 * PER_COLUMN);
    squares += h3 * (h3 * PER_COLUMN);
    let rstd = inverseSqrt(sum_squares(squares, place, lane, subgroup_size) + params.eps);
    let y0 = (h0 * rstd);
    let y1 = (h1 * rstd);
    let y2 = (h2 * rstd);
    let y3 = (h3 * rstd);
    store_y(row, row_exists, 0u, thread, y0);
    store_y(row, row_exists, 1u, thread, y1);
    store_y(row, row_exists, 2u, thread, y2);
    store_y(row, row_exists, 3u, thread, y3);
}
