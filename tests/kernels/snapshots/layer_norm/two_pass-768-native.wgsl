// The second sweep sums distances from the mean, so nothing large cancels. The sum of these distances is the rounding
// error of the mean, and hi_lo_mean corrects it.

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

const THREADS = 256u;  // invocations per row
const STEPS = 3u;  // Vecs per invocation

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

// A value of the row. Sums of differences from it stay small even if the row is far from 0, so adding many terms costs
// few digits (Chan, Golub and LeVeque 1983, shifted data). Differences from a value that masks a column would overflow.
fn pivot_of(row: u32) -> f32 {
    let first = load_x(row, 0u, 0u);
    let value = first;
    return select(value, 0.0, abs(value) > 1e35);
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return value;
}

// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized * load_weight(j, thread) + load_bias(j, thread);
}

var<workgroup> partials: array<vec2<f32>, 256>;

// Sums over the row's invocations, by a tree: each level halves the number of terms.
fn row_sums(own: vec2<f32>, thread: u32) -> vec2<f32> {
    partials[thread] = own;
    for (var left = THREADS / 2u; left > 0u; left /= 2u) {
        workgroupBarrier();
        if (thread < left) {
            partials[thread] += partials[thread + left];
        }
    }
    workgroupBarrier();
    let sums = partials[0];
    workgroupBarrier();  // before the next ones are written
    return sums;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place;
    let row_index = workgroup;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    // Differences from a value of the row stay small even if the row is far from 0, and so do the errors of their sum.
    let pivot = pivot_of(row);
    var sum = Vec();
    for (var j = 0u; j < STEPS; j++) {
        sum += where_live(load_input(row, j, thread) - pivot, Vec(), j, thread);
    }
    let mean = pivot + row_sums(vec2(total(sum) * PER_COLUMN, 0.0), thread).x;

    var distances = Vec();
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let d = where_live(load_input(row, j, thread) - mean, Vec(), j, thread);
        distances += d;
        squares += d * (d * PER_COLUMN);
    }
    let sums = row_sums(vec2(total(distances), total(squares)), thread);
    // The mean is mean + low, to twice the digits, and the variance about it is smaller by low². A variance beyond
    // float32's range stays infinite, because infinity minus infinity would be NaN.
    let low = sums.x / f32(COLS);
    let variance = select(sums.y, max(sums.y - low * low, 0.0), sums.y < 1e38);
    let rstd = inverseSqrt(variance + params.eps);

    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        let y_value = affine((h - mean - low) * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }
}
