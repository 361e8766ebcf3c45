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
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = vec4<f32>;

const THREADS = 32u;  // invocations per row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// An access in its storage format, and step j of it.
fn fetch_x(row: u32, j: u32, thread: u32) -> vec4<f32> {
    return x[(params.x_start + row * COLS) / 4u + access(j, thread)];
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    return x[(params.x_start + row * COLS) / 4u + access(j, thread)];
}

fn fetch_weight(j: u32, thread: u32) -> vec4<f32> {
    return weight[access(j, thread)];
}

fn fetch_bias(j: u32, thread: u32) -> vec4<f32> {
    return bias[access(j, thread)];
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = (params.y_start + row * COLS) / 4u + access(j, thread);
    if (row_exists) {
        y[at] = value;
    }
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

var<workgroup> sum_squares_partials: array<f32, 8>;

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
    }
    return value;
}
var<workgroup> parked: array<vec4<f32>, 128>;

@compute @workgroup_size(32)
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
    let thread = place;
    let row_index = workgroup;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    let h0 = load_x(row, 0u, thread);
    let h1 = load_x(row, 1u, thread);
    let raw2 = fetch_x(row, 2u, thread);
    let h2 = raw2;
    let raw3 = fetch_x(row, 3u, thread);
    let h3 = raw3;
    let raw4 = fetch_x(row, 4u, thread);
    let h4 = raw4;
    let raw5 = fetch_x(row, 5u, thread);
    let h5 = raw5;
    parked[0u + place] = raw2;
    parked[32u + place] = raw3;
    parked[64u + place] = raw4;
    parked[96u + place] = raw5;
    let weight0 = fetch_weight(0u, thread);
    let weight1 = fetch_weight(1u, thread);
    let weight2 = fetch_weight(2u, thread);
    let weight3 = fetch_weight(3u, thread);
    let weight4 = fetch_weight(4u, thread);
    let weight5 = fetch_weight(5u, thread);
    let bias0 = fetch_bias(0u, thread);
    let bias1 = fetch_bias(1u, thread);
    let bias2 = fetch_bias(2u, thread);
    let bias3 = fetch_bias(3u, thread);
    let bias4 = fetch_bias(4u, thread);
    let bias5 = fetch_bias(5u, thread);

    var squares = h0 * (h0 * PER_COLUMN);
    squares += h1 * (h1 * PER_COLUMN);
    squares += h2 * (h2 * PER_COLUMN);
    squares += h3 * (h3 * PER_COLUMN);
    squares += h4 * (h4 * PER_COLUMN);
    squares += h5 * (h5 * PER_COLUMN);
    let rstd = inverseSqrt(sum_squares(total(squares), place, lane, subgroup_size) + params.eps);
    let y0 = (h0 * rstd) * weight0 + bias0;
    let y1 = (h1 * rstd) * weight1 + bias1;
    let y2 = (parked[0u + place] * rstd) * weight2 + bias2;
    let y3 = (parked[32u + place] * rstd) * weight3 + bias3;
    let y4 = (parked[64u + place] * rstd) * weight4 + bias4;
    let y5 = (parked[96u + place] * rstd) * weight5 + bias5;
    store_y(row, row_exists, 0u, thread, y0);
    store_y(row, row_exists, 1u, thread, y1);
    store_y(row, row_exists, 2u, thread, y2);
    store_y(row, row_exists, 3u, thread, y3);
    store_y(row, row_exists, 4u, thread, y4);
    store_y(row, row_exists, 5u, thread, y5);
}
