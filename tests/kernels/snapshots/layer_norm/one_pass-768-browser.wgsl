// This kernel is here because much existing code works this way. It is fast and passes on benign inputs, and
// `webnorm check` shows where it is wrong. The clamp at zero hides a negative variance, but not the error.

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

alias Vec = f32;

const THREADS = 256u;  // invocations per row
const STEPS = 3u;  // Vecs per invocation

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
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

    var sum = Vec();
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let value = load_input(row, j, thread);
        sum += value;
        squares += value * value;
    }
    let moments = row_sums(vec2(total(sum), total(squares)), thread) / f32(COLS);
    let mean = moments.x;
    let variance = max(moments.y - mean * mean, 0.0);
    let rstd = inverseSqrt(variance + params.eps);

    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        let y_value = affine((h - mean) * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }
}
