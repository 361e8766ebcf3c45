// Specialised on the number of columns and unrolled, since registers have no addresses: every load is
// issued before the first sum, and each value lives in a name of its own. Memory is touched as often as by
// a copy, so the two sweeps and the second word of the mean cost nothing that can be seen.

// `start` is the element of each per-row binding at which the slice's first row begins.
struct Params { rows: u32, start: u32, eps: f32 }
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
const STEPS = 2u;  // Vecs per invocation
const ACCESSES = COLS / 4u;  // Vecs per row

fn columns(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return columns(j, thread) < ACCESSES;
}

// `value` in the columns that exist, `otherwise` in those that do not.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return select(otherwise, value, live(j, thread));
}

fn row_start(row: u32) -> u32 {
    return (params.start + row * COLS) / 4u;
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let at = min(columns(j, thread), ACCESSES - 1u);
    let start = row_start(row);
    let value = x[start + at];
    return where_live(value, Vec(), j, thread);
}

fn load_weight(j: u32, thread: u32) -> Vec {
    let at = min(columns(j, thread), ACCESSES - 1u);
    let value = weight[at];
    return where_live(value, Vec(), j, thread);
}

fn load_bias(j: u32, thread: u32) -> Vec {
    let at = min(columns(j, thread), ACCESSES - 1u);
    let value = bias[at];
    return where_live(value, Vec(), j, thread);
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = columns(j, thread);
    let start = row_start(row);
    let wanted = live(j, thread) & row_exists;
    if (wanted) {
        y[start + at] = value;
    }
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized * load_weight(j, thread) + load_bias(j, thread);
}

var<workgroup> sum_x_partials: array<f32, 32>;

fn sum_x(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    if (1u < subgroup_size) {
        let other = subgroupShuffleXor(value, 1u);
        value += other;
    }
    if (2u < subgroup_size) {
        let other = subgroupShuffleXor(value, 2u);
        value += other;
    }
    if (4u < subgroup_size) {
        let other = subgroupShuffleXor(value, 4u);
        value += other;
    }
    if (8u < subgroup_size) {
        let other = subgroupShuffleXor(value, 8u);
        value += other;
    }
    if (16u < subgroup_size) {
        let other = subgroupShuffleXor(value, 16u);
        value += other;
    }
    if (32u < subgroup_size) {
        let other = subgroupShuffleXor(value, 32u);
        value += other;
    }
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
        value += other;
    }
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_x_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_x_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_x_partials[first + i];
        }
        let lanes = min(count, subgroup_size);
        if (1u < lanes) {
            let other = subgroupShuffleXor(value, 1u);
            value += other;
        }
        if (2u < lanes) {
            let other = subgroupShuffleXor(value, 2u);
            value += other;
        }
        if (4u < lanes) {
            let other = subgroupShuffleXor(value, 4u);
            value += other;
        }
        if (8u < lanes) {
            let other = subgroupShuffleXor(value, 8u);
            value += other;
        }
        if (16u < lanes) {
            let other = subgroupShuffleXor(value, 16u);
            value += other;
        }
    }
    return value;
}

var<workgroup> sum_deviations_partials: array<vec2<f32>, 32>;

fn sum_deviations(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
    var value = own;
    if (1u < subgroup_size) {
        let other = subgroupShuffleXor(value, 1u);
        value += other;
    }
    if (2u < subgroup_size) {
        let other = subgroupShuffleXor(value, 2u);
        value += other;
    }
    if (4u < subgroup_size) {
        let other = subgroupShuffleXor(value, 4u);
        value += other;
    }
    if (8u < subgroup_size) {
        let other = subgroupShuffleXor(value, 8u);
        value += other;
    }
    if (16u < subgroup_size) {
        let other = subgroupShuffleXor(value, 16u);
        value += other;
    }
    if (32u < subgroup_size) {
        let other = subgroupShuffleXor(value, 32u);
        value += other;
    }
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
        value += other;
    }
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_deviations_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_deviations_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_deviations_partials[first + i];
        }
        let lanes = min(count, subgroup_size);
        if (1u < lanes) {
            let other = subgroupShuffleXor(value, 1u);
            value += other;
        }
        if (2u < lanes) {
            let other = subgroupShuffleXor(value, 2u);
            value += other;
        }
        if (4u < lanes) {
            let other = subgroupShuffleXor(value, 4u);
            value += other;
        }
        if (8u < lanes) {
            let other = subgroupShuffleXor(value, 8u);
            value += other;
        }
        if (16u < lanes) {
            let other = subgroupShuffleXor(value, 16u);
            value += other;
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
    let thread = place;
    let row_index = workgroup;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    let x0 = load_x(row, 0u, thread);
    let x1 = load_x(row, 1u, thread);

    var sum = x0;
    sum += x1;
    let mean = sum_x(total(sum), place, lane, subgroup_size) / f32(COLS);

    var deviations = Vec();
    var spreads = Vec();
    let d0 = where_live(x0 - mean, Vec(), 0u, thread);
    deviations += d0;
    spreads += d0 * (d0 * PER_COLUMN);
    let d1 = where_live(x1 - mean, Vec(), 1u, thread);
    deviations += d1;
    spreads += d1 * (d1 * PER_COLUMN);
    let sums = sum_deviations(vec2(total(deviations), total(spreads)), place, lane, subgroup_size);
    let deviation = sums.x;
    let spread = sums.y;
    let low = deviation / f32(COLS);
    let rstd = inverseSqrt(max(spread - low * low, 0.0) + params.eps);

    store_y(row, row_exists, 0u, thread, affine((d0 - low) * rstd, 0u, thread));
    store_y(row, row_exists, 1u, thread, affine((d1 - low) * rstd, 1u, thread));
}
