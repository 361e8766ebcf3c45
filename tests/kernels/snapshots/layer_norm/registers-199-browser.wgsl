// Specialised for the number of columns and unrolled, because registers have no addresses. All loads are issued before
// the first sum, and each value has its own name. The memory traffic equals a copy's, so the two sweeps and the
// second word of the mean cost almost nothing.

enable subgroups;
requires subgroup_id;

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

const THREADS = 32u;  // invocations per row
const ACCESSES = COLS;  // Vecs per row

const WHOLE_STEPS = 6u;  // those with no Vec past the row

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

// A value of the row. Sums of differences from it stay small even if the row is far from 0, so adding many terms costs
// few digits (Chan, Golub and LeVeque 1983, shifted data). Differences from a value that masks a column would overflow.
fn pivot_of(row: u32) -> f32 {
    let first = load_x(row, 0u, 0u);
    let value = first;
    return select(value, 0.0, abs(value) > 1e35);
}

const SCALE = 0.0625;

var<workgroup> sum_x_partials: array<f32, 32>;

fn sum_x(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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

var<workgroup> sum_deviations_partials: array<vec2<f32>, 32>;

fn sum_deviations(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
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
    let row_index = workgroup * 4u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    let h0 = load_x(row, 0u, thread);
    let h1 = load_x(row, 1u, thread);
    let h2 = load_x(row, 2u, thread);
    let h3 = load_x(row, 3u, thread);
    let h4 = load_x(row, 4u, thread);
    let h5 = load_x(row, 5u, thread);
    let h6 = load_x(row, 6u, thread);

    let row_pivot = pivot_of(row);
    var column_sum = Vec();
    column_sum += where_live(h0 - row_pivot, Vec(), 0u, thread);
    column_sum += where_live(h1 - row_pivot, Vec(), 1u, thread);
    column_sum += where_live(h2 - row_pivot, Vec(), 2u, thread);
    column_sum += where_live(h3 - row_pivot, Vec(), 3u, thread);
    column_sum += where_live(h4 - row_pivot, Vec(), 4u, thread);
    column_sum += where_live(h5 - row_pivot, Vec(), 5u, thread);
    column_sum += where_live(h6 - row_pivot, Vec(), 6u, thread);
    let mean = row_pivot + sum_x(column_sum * PER_COLUMN, place, lane, subgroup_size);
    let scaled_mean = Vec(mean * SCALE);
    var sum = Vec();
    var squares = Vec();
    let d0 = where_live(fma(h0, Vec(SCALE), -scaled_mean), Vec(), 0u, thread);
    sum += d0;
    squares += d0 * d0;
    let d1 = where_live(fma(h1, Vec(SCALE), -scaled_mean), Vec(), 1u, thread);
    sum += d1;
    squares += d1 * d1;
    let d2 = where_live(fma(h2, Vec(SCALE), -scaled_mean), Vec(), 2u, thread);
    sum += d2;
    squares += d2 * d2;
    let d3 = where_live(fma(h3, Vec(SCALE), -scaled_mean), Vec(), 3u, thread);
    sum += d3;
    squares += d3 * d3;
    let d4 = where_live(fma(h4, Vec(SCALE), -scaled_mean), Vec(), 4u, thread);
    sum += d4;
    squares += d4 * d4;
    let d5 = where_live(fma(h5, Vec(SCALE), -scaled_mean), Vec(), 5u, thread);
    sum += d5;
    squares += d5 * d5;
    let d6 = where_live(fma(h6, Vec(SCALE), -scaled_mean), Vec(), 6u, thread);
    sum += d6;
    squares += d6 * d6;
    let sums = sum_deviations(vec2(sum, squares), place, lane, subgroup_size);
    let deviation = sums.x / SCALE;
    let spread = sums.y * (PER_COLUMN / (SCALE * SCALE));
    let low = deviation / f32(COLS);
    // Beyond float32's range, infinity minus infinity would be NaN, and max() would turn NaN into 0.
    let variance = select(spread, max(spread - low * low, 0.0), spread < 1e38);
    let rstd = inverseSqrt(variance + params.eps);
    let gain = rstd / SCALE;
    let offset = -low * rstd;
    let y0 = (d0 * gain + offset);
    let y1 = (d1 * gain + offset);
    let y2 = (d2 * gain + offset);
    let y3 = (d3 * gain + offset);
    let y4 = (d4 * gain + offset);
    let y5 = (d5 * gain + offset);
    let y6 = (d6 * gain + offset);
    store_y(row, row_exists, 0u, thread, y0);
    store_y(row, row_exists, 1u, thread, y1);
    store_y(row, row_exists, 2u, thread, y2);
    store_y(row, row_exists, 3u, thread, y3);
    store_y(row, row_exists, 4u, thread, y4);
    store_y(row, row_exists, 5u, thread, y5);
    store_y(row, row_exists, 6u, thread, y6);
}
