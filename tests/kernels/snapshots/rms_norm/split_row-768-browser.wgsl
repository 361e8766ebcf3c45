// There is no barrier between workgroups, so they exchange data through memory and a second dispatch.

enable subgroups;
requires subgroup_id;

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    y_start: u32,
    parts_start: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> parts: array<f32>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = vec4<f32>;
alias Live = bool;

const THREADS = 256u;  // invocations per row
const STEPS = 4u;  // Vecs per invocation
const ACCESSES = COLS / 4u;  // Vecs per row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The number of the invocation's Vec at step j, at most the number of the row's last Vec.
fn inside(j: u32, thread: u32) -> u32 {
    return min(access(j, thread), ACCESSES - 1u);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return access(j, thread) < ACCESSES;
}

// `value` in columns that exist, `otherwise` in the others.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return select(otherwise, value, live(j, thread));
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let raw = x[(params.x_start + row * COLS) / 4u + inside(j, thread)];
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
    let at = (params.y_start + row * COLS) / 4u + access(j, thread);
    if (row_exists && live(j, thread)) {
        y[at] = value;
    }
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized * load_weight(j, thread) + load_bias(j, thread);
}

const PARTS = 1u;  // workgroups of a row

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
        if (32u < lanes) {
            let other = subgroupShuffleXor(value, 32u);
            value = value + other;
        }
    }
    return value;
}

var<workgroup> sum_spreads_partials: array<f32, 64>;

fn sum_spreads(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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
        if (lane == 0u) { sum_spreads_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_spreads_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_spreads_partials[first + i];
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
        if (32u < lanes) {
            let other = subgroupShuffleXor(value, 32u);
            value = value + other;
        }
    }
    return value;
}

@compute @workgroup_size(256)
fn measure(
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
    let row_index = workgroup / PARTS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
    let part = workgroup % PARTS;
    let first = part * STEPS;

    let h0 = load_x(row, first + 0u, thread);
    let h1 = load_x(row, first + 1u, thread);
    let h2 = load_x(row, first + 2u, thread);
    let h3 = load_x(row, first + 3u, thread);
    var squares = h0 * (h0 * PER_COLUMN);
    squares += h1 * (h1 * PER_COLUMN);
    squares += h2 * (h2 * PER_COLUMN);
    squares += h3 * (h3 * PER_COLUMN);
    let part_spread = sum_squares(total(squares), place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        let at = params.parts_start + (row * PARTS + part) * 1u;
        parts[at] = part_spread;
    }
}

@compute @workgroup_size(256)
fn normalize_rows(
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
    let row_index = workgroup / PARTS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
    let part = workgroup % PARTS;
    let first = part * STEPS;

    let h0 = load_x(row, first + 0u, thread);
    let h1 = load_x(row, first + 1u, thread);
    let h2 = load_x(row, first + 2u, thread);
    let h3 = load_x(row, first + 3u, thread);
    let records = params.parts_start + row * 1u * PARTS;
    var squares_of_parts = 0.0;
    for (var other = thread; other < PARTS; other += THREADS) {
        squares_of_parts += parts[records + 1u * other];
    }
    let variance = sum_spreads(squares_of_parts, place, lane, subgroup_size);
    let rstd = inverseSqrt(variance + params.eps);
    let y0 = affine(h0 * rstd, first + 0u, thread);
    let y1 = affine(h1 * rstd, first + 1u, thread);
    let y2 = affine(h2 * rstd, first + 2u, thread);
    let y3 = affine(h3 * rstd, first + 3u, thread);
    store_y(row, row_exists, first + 0u, thread, y0);
    store_y(row, row_exists, first + 1u, thread, y1);
    store_y(row, row_exists, first + 2u, thread, y2);
    store_y(row, row_exists, first + 3u, thread, y3);
}
