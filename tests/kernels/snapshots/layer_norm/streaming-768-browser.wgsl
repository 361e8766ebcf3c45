// The kernel for problems that no other kernel accepts: it keeps only a row's sums. On a CPU one invocation per row is
// fastest, because it waits for no other.

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
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = vec4<f32>;
alias Live = bool;

const THREADS = 256u;  // invocations per row
const STEPS = 1u;  // Vecs per invocation
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

// The number of the invocation's columns.
fn own_columns(thread: u32) -> f32 {
    let last = ACCESSES - 1u;
    let columns = 4u * ((last + THREADS - thread) / THREADS);
    return f32(columns);
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

// A value of the row. Sums of differences from it stay small even if the row is far from 0, so adding many terms costs
// few digits (Chan, Golub and LeVeque 1983, shifted data). Differences from a value that masks a column would overflow.
fn pivot_of(row: u32) -> f32 {
    let first = load_x(row, 0u, 0u);
    let value = first.x;
    return select(value, 0.0, abs(value) > 1e35);
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized * load_weight(j, thread) + load_bias(j, thread);
}

const SCALE = 0.03125;

// The median, which is never a single outlier. Values that mask a column are replaced, because differences overflow.
fn middle_of(a: f32, b: f32, c: f32) -> f32 {
    let value = max(min(a, b), min(max(a, b), c));
    return select(value, 0.0, abs(value) > 1e35);
}

// The sum and the sum of squares of `count` values, moved by a distance. Squares beyond float32's range stay infinite.
fn moved(count: f32, sums: vec2<f32>, by: f32) -> vec2<f32> {
    let sum = fma(count, by, sums.x);
    let squares = sums.y + by * (sums.x + sum);
    return vec2(sum, select(squares, sums.y, sums.y > 1e38 && abs(by) < 1e38));
}

var<workgroup> sum_x_partials: array<f32, 64>;

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
    if (32u < subgroup_size) {
        let other = subgroupShuffleXor(value, 32u);
        value = value + other;
    }
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
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

var<workgroup> sum_deviations_partials: array<vec2<f32>, 64>;

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
    if (32u < subgroup_size) {
        let other = subgroupShuffleXor(value, 32u);
        value = value + other;
    }
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
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

    let row_pivot = pivot_of(row);
    var pivot = middle_of(where_live(load_x(row, 0u, thread), Vec(row_pivot), 0u, thread)[0], where_live(load_x(row, 0u, thread), Vec(row_pivot), 0u, thread)[3], where_live(load_x(row, 0u, thread), Vec(row_pivot), 0u, thread)[2]);
    var sum = Vec();
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        let d = where_live(fma(h, Vec(SCALE), -Vec(pivot * SCALE)), Vec(), j, thread);
        sum += d;
        squares += d * d;
        if (j % 16u == 15u && access(j, thread) < ACCESSES - 1u) {
            let own = vec2(total(sum), total(squares));
            let count = f32(4u * (j + 1u));
            let better = pivot + own.x / (count * SCALE);
            if (own.y < 1e38) {
                let sums = moved(count, own, fma(pivot, SCALE, -(better * SCALE)));
                sum = Vec();
                squares = Vec();
                sum.x = sums.x;
                squares.x = sums.y;
                pivot = better;
            }
        }
    }
    let count = own_columns(thread);
    let own = vec2(total(sum), total(squares));
    let about_row = moved(count, own, fma(pivot, SCALE, -(row_pivot * SCALE))).x;
    let mean = row_pivot + sum_x(about_row * PER_COLUMN, place, lane, subgroup_size) / SCALE;
    let apart = fma(pivot, SCALE, -(mean * SCALE));
    let sums = sum_deviations(moved(count, own, apart), place, lane, subgroup_size);
    let deviation = sums.x / SCALE;
    let spread = sums.y * (PER_COLUMN / (SCALE * SCALE));
    let low = deviation / f32(COLS);
    // Beyond float32's range, infinity minus infinity would be NaN, and max() would turn NaN into 0.
    let variance = select(spread, max(spread - low * low, 0.0), spread < 1e38);
    let rstd = inverseSqrt(variance + params.eps);
    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        let y_value = affine((h - mean - low) * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }
}
