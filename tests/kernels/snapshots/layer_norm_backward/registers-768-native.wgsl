// The number of workgroups is chosen to fill the adapter, not the problem. Each keeps a record of sums in registers
// while it walks over its rows. Fewer records leave less work for the last pass.

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    dy_start: u32,
    dx_start: u32,
    partials_count: u32,
    partials_kept: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> dx: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> dweight: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> dbias: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> partials: array<vec4<f32>>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

// The set of workgroup memory for the reductions of this row, 0 or 1.
var<private> turn: u32;

fn next_turn() {
    turn = 1u - turn;
}

alias Vec = vec4<f32>;
alias Live = bool;

const THREADS = 32u;  // invocations per row
const ACCESSES = COLS / 4u;  // Vecs per row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The number of the invocation's Vec at step j, at most the number of the row's last Vec.
fn inside(j: u32, thread: u32) -> u32 {
    return access(j, thread);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return access(j, thread) < ACCESSES;
}

// The number of the invocation's columns.
fn own_columns(thread: u32) -> f32 {
    return 24.0;
}

// An access in its storage format, and step j of it.
fn fetch_x(row: u32, j: u32, thread: u32) -> vec4<f32> {
    return x[(params.x_start + row * COLS) / 4u + access(j, thread)];
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    return x[(params.x_start + row * COLS) / 4u + access(j, thread)];
}

// An access in its storage format, and step j of it.
fn fetch_dy(row: u32, j: u32, thread: u32) -> vec4<f32> {
    return dy[(params.dy_start + row * COLS) / 4u + access(j, thread)];
}

fn load_weight(j: u32, thread: u32) -> Vec {
    return weight[access(j, thread)];
}

fn store_dx(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = (params.dx_start + row * COLS) / 4u + access(j, thread);
    if (row_exists) {
        dx[at] = value;
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

const CHUNKS = 192u;  // vec4 per row of a record

// The slices of a split problem run one after the other and add to the same records.
fn put_partial(at: u32, value: vec4<f32>) {
    var sum = value;
    if (params.partials_kept != 0u) { sum += partials[at]; }
    partials[at] = sum;
}

fn store_dweight(chunk: u32, value: vec4<f32>) {
    dweight[chunk] = value;
}

fn store_dbias(chunk: u32, value: vec4<f32>) {
    dbias[chunk] = value;
}

var<workgroup> finish_sums: array<vec4<f32>, 256>;

// 32 invocations share the records of a chunk, 8 chunks to a workgroup.
@compute @workgroup_size(256)
fn finish(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let share = invocation / 8u;
    const PER_RECORD = 2u * CHUNKS;
    let item = workgroup;
    let at = item * 8u + invocation % 8u;
    let inside = min(at, PER_RECORD - 1u);
    var sum = vec4<f32>();
    for (var record = share; record < params.partials_count; record += 32u) {
        sum += partials[record * PER_RECORD + inside];
    }
    finish_sums[invocation] = sum;
    workgroupBarrier();
    if (share < 16u) {
        finish_sums[invocation] += finish_sums[invocation + 128u];
    }
    workgroupBarrier();
    if (share < 8u) {
        finish_sums[invocation] += finish_sums[invocation + 64u];
    }
    workgroupBarrier();
    if (share < 4u) {
        finish_sums[invocation] += finish_sums[invocation + 32u];
    }
    workgroupBarrier();
    if (share < 2u) {
        finish_sums[invocation] += finish_sums[invocation + 16u];
    }
    workgroupBarrier();
    if (share < 1u) {
        finish_sums[invocation] += finish_sums[invocation + 8u];
    }
    workgroupBarrier();
    if (share == 0u && at < PER_RECORD) {
        let chunk = at % CHUNKS;
        if (at / CHUNKS == 0u) { store_dweight(chunk, finish_sums[invocation]); }
        if (at / CHUNKS == 1u) { store_dbias(chunk, finish_sums[invocation]); }
    }
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
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_x_partials[turn * 32u + place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_x_partials[turn * 32u + first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_x_partials[turn * 32u + first + i];
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
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_deviations_partials[turn * 32u + place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_deviations_partials[turn * 32u + first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_deviations_partials[turn * 32u + first + i];
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

var<workgroup> sum_gradients_partials: array<vec2<f32>, 64>;

fn sum_gradients(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
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
        if (lane == 0u) { sum_gradients_partials[turn * 32u + place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_gradients_partials[turn * 32u + first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_gradients_partials[turn * 32u + first + i];
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
// The sums of all rows of a workgroup.
var<workgroup> merged: array<vec4<f32>, 384>;

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
    let record = workgroup;
    let weight0 = load_weight(0u, thread);
    let weight1 = load_weight(1u, thread);
    let weight2 = load_weight(2u, thread);
    let weight3 = load_weight(3u, thread);
    let weight4 = load_weight(4u, thread);
    let weight5 = load_weight(5u, thread);
    var dweight0 = Vec();
    var dweight1 = Vec();
    var dweight2 = Vec();
    var dweight3 = Vec();
    var dweight4 = Vec();
    var dweight5 = Vec();
    var dbias0 = Vec();
    var dbias1 = Vec();
    var dbias2 = Vec();
    var dbias3 = Vec();
    var dbias4 = Vec();
    var dbias5 = Vec();

    let first = min(record * 4u + place / THREADS, params.rows - 1u);
    var next_x0 = fetch_x(first, 0u, thread);
    var next_dy0 = fetch_dy(first, 0u, thread);
    var next_x1 = fetch_x(first, 1u, thread);
    var next_dy1 = fetch_dy(first, 1u, thread);
    var next_x2 = fetch_x(first, 2u, thread);
    var next_dy2 = fetch_dy(first, 2u, thread);
    var next_x3 = fetch_x(first, 3u, thread);
    var next_dy3 = fetch_dy(first, 3u, thread);
    var next_x4 = fetch_x(first, 4u, thread);
    var next_dy4 = fetch_dy(first, 4u, thread);
    var next_x5 = fetch_x(first, 5u, thread);
    var next_dy5 = fetch_dy(first, 5u, thread);
    var next_pivot = pivot_of(first);
    // A dispatch of two dimensions may have more workgroups than there are records.
    let rows = select(0u, params.rows, record < params.partials_count);
    for (var group = record; group * 4u < rows; group += params.partials_count) {
    let row_index = group * 4u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
        // The loads of the next row overlap the work on this one.
        let next = min((group + params.partials_count) * 4u + place / THREADS, params.rows - 1u);
        let x0 = next_x0;
        let dy0 = next_dy0;
        let x1 = next_x1;
        let dy1 = next_dy1;
        let x2 = next_x2;
        let dy2 = next_dy2;
        let x3 = next_x3;
        let dy3 = next_dy3;
        let x4 = next_x4;
        let dy4 = next_dy4;
        let x5 = next_x5;
        let dy5 = next_dy5;
        let pivot_ahead = next_pivot;
        next_pivot = pivot_of(next);
        next_x0 = fetch_x(next, 0u, thread);
        next_dy0 = fetch_dy(next, 0u, thread);
        next_x1 = fetch_x(next, 1u, thread);
        next_dy1 = fetch_dy(next, 1u, thread);
        next_x2 = fetch_x(next, 2u, thread);
        next_dy2 = fetch_dy(next, 2u, thread);
        next_x3 = fetch_x(next, 3u, thread);
        next_dy3 = fetch_dy(next, 3u, thread);
        next_x4 = fetch_x(next, 4u, thread);
        next_dy4 = fetch_dy(next, 4u, thread);
        next_x5 = fetch_x(next, 5u, thread);
        next_dy5 = fetch_dy(next, 5u, thread);
    let row_pivot = pivot_ahead;
    let pivot = middle_of(x0[0], x0[3], x1[2]);
    let scaled_pivot = Vec(pivot * SCALE);
    var sum = Vec();
    var squares = Vec();
    let d0 = fma(x0, Vec(SCALE), -scaled_pivot);
    sum += d0;
    squares += d0 * d0;
    let d1 = fma(x1, Vec(SCALE), -scaled_pivot);
    sum += d1;
    squares += d1 * d1;
    let d2 = fma(x2, Vec(SCALE), -scaled_pivot);
    sum += d2;
    squares += d2 * d2;
    let d3 = fma(x3, Vec(SCALE), -scaled_pivot);
    sum += d3;
    squares += d3 * d3;
    let d4 = fma(x4, Vec(SCALE), -scaled_pivot);
    sum += d4;
    squares += d4 * d4;
    let d5 = fma(x5, Vec(SCALE), -scaled_pivot);
    sum += d5;
    squares += d5 * d5;
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

        var along = Vec();
    let gain = rstd / SCALE;
    let offset = (apart - low * SCALE) * gain;
        var across = Vec();
        let xhat0 = d0 * gain + offset;
        let g0 = dy0 * weight0;
        let xhat1 = d1 * gain + offset;
        let g1 = dy1 * weight1;
        let xhat2 = d2 * gain + offset;
        let g2 = dy2 * weight2;
        let xhat3 = d3 * gain + offset;
        let g3 = dy3 * weight3;
        let xhat4 = d4 * gain + offset;
        let g4 = dy4 * weight4;
        let xhat5 = d5 * gain + offset;
        let g5 = dy5 * weight5;
        along += g0 * xhat0;
        across += g0;
        along += g1 * xhat1;
        across += g1;
        along += g2 * xhat2;
        across += g2;
        along += g3 * xhat3;
        across += g3;
        along += g4 * xhat4;
        across += g4;
        along += g5 * xhat5;
        across += g5;
        let means = sum_gradients(vec2(total(along), total(across)) * PER_COLUMN, place, lane, subgroup_size);
        let slope = -means.x * rstd;
        let level = -means.y * rstd;
        let dx0 = g0 * rstd + (xhat0 * slope + level);
        dweight0 += select(Vec(), dy0 * xhat0, row_exists);
        dbias0 += select(Vec(), dy0, row_exists);
    store_dx(row, row_exists, 0u, thread, dx0);
        let dx1 = g1 * rstd + (xhat1 * slope + level);
        dweight1 += select(Vec(), dy1 * xhat1, row_exists);
        dbias1 += select(Vec(), dy1, row_exists);
    store_dx(row, row_exists, 1u, thread, dx1);
        let dx2 = g2 * rstd + (xhat2 * slope + level);
        dweight2 += select(Vec(), dy2 * xhat2, row_exists);
        dbias2 += select(Vec(), dy2, row_exists);
    store_dx(row, row_exists, 2u, thread, dx2);
        let dx3 = g3 * rstd + (xhat3 * slope + level);
        dweight3 += select(Vec(), dy3 * xhat3, row_exists);
        dbias3 += select(Vec(), dy3, row_exists);
    store_dx(row, row_exists, 3u, thread, dx3);
        let dx4 = g4 * rstd + (xhat4 * slope + level);
        dweight4 += select(Vec(), dy4 * xhat4, row_exists);
        dbias4 += select(Vec(), dy4, row_exists);
    store_dx(row, row_exists, 4u, thread, dx4);
        let dx5 = g5 * rstd + (xhat5 * slope + level);
        dweight5 += select(Vec(), dy5 * xhat5, row_exists);
        dbias5 += select(Vec(), dy5, row_exists);
    store_dx(row, row_exists, 5u, thread, dx5);
        next_turn();
    }

    if (place / THREADS == 0u) {
        if (live(0u, thread)) {
            merged[0u * CHUNKS + access(0u, thread)] = dweight0;
            merged[1u * CHUNKS + access(0u, thread)] = dbias0;
        }
        if (live(1u, thread)) {
            merged[0u * CHUNKS + access(1u, thread)] = dweight1;
            merged[1u * CHUNKS + access(1u, thread)] = dbias1;
        }
        if (live(2u, thread)) {
            merged[0u * CHUNKS + access(2u, thread)] = dweight2;
            merged[1u * CHUNKS + access(2u, thread)] = dbias2;
        }
        if (live(3u, thread)) {
            merged[0u * CHUNKS + access(3u, thread)] = dweight3;
            merged[1u * CHUNKS + access(3u, thread)] = dbias3;
        }
        if (live(4u, thread)) {
            merged[0u * CHUNKS + access(4u, thread)] = dweight4;
            merged[1u * CHUNKS + access(4u, thread)] = dbias4;
        }
        if (live(5u, thread)) {
            merged[0u * CHUNKS + access(5u, thread)] = dweight5;
            merged[1u * CHUNKS + access(5u, thread)] = dbias5;
        }
    }
    workgroupBarrier();
    if (place / THREADS == 1u) {
        if (live(0u, thread)) {
            merged[0u * CHUNKS + access(0u, thread)] += dweight0;
            merged[1u * CHUNKS + access(0u, thread)] += dbias0;
        }
        if (live(1u, thread)) {
            merged[0u * CHUNKS + access(1u, thread)] += dweight1;
            merged[1u * CHUNKS + access(1u, thread)] += dbias1;
        }
        if (live(2u, thread)) {
            merged[0u * CHUNKS + access(2u, thread)] += dweight2;
            merged[1u * CHUNKS + access(2u, thread)] += dbias2;
        }
        if (live(3u, thread)) {
            merged[0u * CHUNKS + access(3u, thread)] += dweight3;
            merged[1u * CHUNKS + access(3u, thread)] += dbias3;
        }
        if (live(4u, thread)) {
            merged[0u * CHUNKS + access(4u, thread)] += dweight4;
            merged[1u * CHUNKS + access(4u, thread)] += dbias4;
        }
        if (live(5u, thread)) {
            merged[0u * CHUNKS + access(5u, thread)] += dweight5;
            merged[1u * CHUNKS + access(5u, thread)] += dbias5;
        }
    }
    workgroupBarrier();
    if (place / THREADS == 2u) {
        if (live(0u, thread)) {
            merged[0u * CHUNKS + access(0u, thread)] += dweight0;
            merged[1u * CHUNKS + access(0u, thread)] += dbias0;
        }
        if (live(1u, thread)) {
            merged[0u * CHUNKS + access(1u, thread)] += dweight1;
            merged[1u * CHUNKS + access(1u, thread)] += dbias1;
        }
        if (live(2u, thread)) {
            merged[0u * CHUNKS + access(2u, thread)] += dweight2;
            merged[1u * CHUNKS + access(2u, thread)] += dbias2;
        }
        if (live(3u, thread)) {
            merged[0u * CHUNKS + access(3u, thread)] += dweight3;
            merged[1u * CHUNKS + access(3u, thread)] += dbias3;
        }
        if (live(4u, thread)) {
            merged[0u * CHUNKS + access(4u, thread)] += dweight4;
            merged[1u * CHUNKS + access(4u, thread)] += dbias4;
        }
        if (live(5u, thread)) {
            merged[0u * CHUNKS + access(5u, thread)] += dweight5;
            merged[1u * CHUNKS + access(5u, thread)] += dbias5;
        }
    }
    workgroupBarrier();
    if (place / THREADS == 3u) {
        if (live(0u, thread)) {
            merged[0u * CHUNKS + access(0u, thread)] += dweight0;
            merged[1u * CHUNKS + access(0u, thread)] += dbias0;
        }
        if (live(1u, thread)) {
            merged[0u * CHUNKS + access(1u, thread)] += dweight1;
            merged[1u * CHUNKS + access(1u, thread)] += dbias1;
        }
        if (live(2u, thread)) {
            merged[0u * CHUNKS + access(2u, thread)] += dweight2;
            merged[1u * CHUNKS + access(2u, thread)] += dbias2;
        }
        if (live(3u, thread)) {
            merged[0u * CHUNKS + access(3u, thread)] += dweight3;
            merged[1u * CHUNKS + access(3u, thread)] += dbias3;
        }
        if (live(4u, thread)) {
            merged[0u * CHUNKS + access(4u, thread)] += dweight4;
            merged[1u * CHUNKS + access(4u, thread)] += dbias4;
        }
        if (live(5u, thread)) {
            merged[0u * CHUNKS + access(5u, thread)] += dweight5;
            merged[1u * CHUNKS + access(5u, thread)] += dbias5;
        }
    }
    workgroupBarrier();
    if (record < params.partials_count) {
        for (var at = place; at < 2u * CHUNKS; at += 128u) {
            put_partial(record * 2u * CHUNKS + at, merged[at]);
        }
    }
}
