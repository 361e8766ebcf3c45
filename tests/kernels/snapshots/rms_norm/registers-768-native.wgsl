// Specialised on the number of columns and unrolled, since registers have no addresses: every load is
// issued before the first sum, and each value lives in a name of its own. Memory is touched as often as by
// a copy, so the two sweeps and the second word of the mean cost next to nothing.

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    y_start: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = vec4<f32>;
alias Live = bool;

const THREADS = 128u;  // invocations per row
const ACCESSES = COLS / 4u;  // Vecs per row

const WHOLE_STEPS = 1u;  // those with no Vec past the row

// Which of the row's Vecs the invocation has at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The same; past the row's last Vec it is that one.
fn inside(j: u32, thread: u32) -> u32 {
    if (j < WHOLE_STEPS) { return access(j, thread); }
    return min(access(j, thread), ACCESSES - 1u);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    if (j < WHOLE_STEPS) { return true; }
    return access(j, thread) < ACCESSES;
}

// `value` in the columns that exist, `otherwise` in those that do not.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return select(otherwise, value, live(j, thread));
}

// An access as it lies in memory, and step j of it.
fn fetch_x(row: u32, j: u32, thread: u32) -> vec4<f32> {
    return x[(params.x_start + row * COLS) / 4u + inside(j, thread)];
}

fn x_of(raw: vec4<f32>, j: u32, thread: u32) -> Vec {
    return where_live(raw, Vec(), j, thread);
}

fn fetch_weight(j: u32, thread: u32) -> vec4<f32> {
    return weight[inside(j, thread)];
}

fn weight_of(raw: vec4<f32>, j: u32, thread: u32) -> Vec {
    return where_live(raw, Vec(), j, thread);
}

fn fetch_bias(j: u32, thread: u32) -> vec4<f32> {
    return bias[inside(j, thread)];
}

fn bias_of(raw: vec4<f32>, j: u32, thread: u32) -> Vec {
    return where_live(raw, Vec(), j, thread);
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = (params.y_start + row * COLS) / 4u + access(j, thread);
    if (row_exists && live(j, thread)) {
        y[at] = value;
    }
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

var<workgroup> sum_squares_partials: array<f32, 64>;

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
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
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
        if (16u < lanes) {
            let other = subgroupShuffleXor(value, 16u);
            value = value + other;
        }
    }
    return value;
}
var<workgroup> parked: array<vec4<f32>, 512>;

@compute @workgroup_size(256)
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

    let raw0 = fetch_x(row, 0u, thread);
    let h0 = x_of(raw0, 0u, thread);
    let raw1 = fetch_x(row, 1u, thread);
    let h1 = x_of(raw1, 1u, thread);
    parked[0u + place] = raw0;
    parked[256u + place] = raw1;
    let weight0 = fetch_weight(0u, thread);
    let weight1 = fetch_weight(1u, thread);
    let bias0 = fetch_bias(0u, thread);
    let bias1 = fetch_bias(1u, thread);

    var squares = h0 * (h0 * PER_COLUMN);
    squares += h1 * (h1 * PER_COLUMN);
    let rstd = inverseSqrt(sum_squares(total(squares), place, lane, subgroup_size) + params.eps);
    let y0 = (x_of(parked[0u + place], 0u, thread) * rstd) * weight_of(weight0, 0u, thread) + bias_of(bias0, 0u, thread);
    let y1 = (x_of(parked[256u + place], 1u, thread) * rstd) * weight_of(weight1, 1u, thread) + bias_of(bias1, 1u, thread);
    store_y(row, row_exists, 0u, thread, y0);
    store_y(row, row_exists, 1u, thread, y1);
}
