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

const THREADS = 64u;  // invocations per row
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

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    return x[(params.x_start + row * COLS) / 4u + access(j, thread)];
}

fn load_dy(row: u32, j: u32, thread: u32) -> Vec {
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

var<workgroup> sum_squares_partials: array<f32, 128>;

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
        if (lane == 0u) { sum_squares_partials[turn * 64u + place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_squares_partials[turn * 64u + first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_squares_partials[turn * 64u + first + i];
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

var<workgroup> sum_gradients_partials: array<f32, 128>;

fn sum_gradients(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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
        if (lane == 0u) { sum_gradients_partials[turn * 64u + place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_gradients_partials[turn * 64u + first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_gradients_partials[turn * 64u + first + i];
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
// The sums of all rows of a workgroup.
var<workgroup> merged: array<vec4<f32>, 384>;

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
    let record = workgroup;
    let weight0 = load_weight(0u, thread);
    let weight1 = load_weight(1u, thread);
    let weight2 = load_weight(2u, thread);
    var dweight0 = Vec();
    var dweight1 = Vec();
    var dweight2 = Vec();
    var dbias0 = Vec();
    var dbias1 = Vec();
    var dbias2 = Vec();

    // A dispatch of two dimensions may have more workgroups than there are records.
    let rows = select(0u, params.rows, record < params.partials_count);
    for (var group = record; group * 4u < rows; group += params.partials_count) {
    let row_index = group * 4u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
        let x0 = load_x(row, 0u, thread);
        let dy0 = load_dy(row, 0u, thread);
        let x1 = load_x(row, 1u, thread);
        let dy1 = load_dy(row, 1u, thread);
        let x2 = load_x(row, 2u, thread);
        let dy2 = load_dy(row, 2u, thread);
    var squares = x0 * (x0 * PER_COLUMN);
    squares += x1 * (x1 * PER_COLUMN);
    squares += x2 * (x2 * PER_COLUMN);
    let rstd = inverseSqrt(sum_squares(total(squares), place, lane, subgroup_size) + params.eps);

        var along = Vec();
        let xhat0 = x0 * rstd;
        let g0 = dy0 * weight0;
        let xhat1 = x1 * rstd;
        let g1 = dy1 * weight1;
        let xhat2 = x2 * rstd;
        let g2 = dy2 * weight2;
        along += g0 * xhat0;
        along += g1 * xhat1;
        along += g2 * xhat2;
        let slope = -sum_gradients(total(along) * PER_COLUMN, place, lane, subgroup_size) * rstd;
        let dx0 = g0 * rstd + (xhat0 * slope);
        dweight0 += select(Vec(), dy0 * xhat0, row_exists);
        dbias0 += select(Vec(), dy0, row_exists);
    store_dx(row, row_exists, 0u, thread, dx0);
        let dx1 = g1 * rstd + (xhat1 * slope);
        dweight1 += select(Vec(), dy1 * xhat1, row_exists);
        dbias1 += select(Vec(), dy1, row_exists);
    store_dx(row, row_exists, 1u, thread, dx1);
        let dx2 = g2 * rstd + (xhat2 * slope);
        dweight2 += select(Vec(), dy2 * xhat2, row_exists);
        dbias2 += select(Vec(), dy2, row_exists);
    store_dx(row, row_exists, 2u, thread, dx2);
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
    }
    workgroupBarrier();
    if (record < params.partials_count) {
        for (var at = place; at < 2u * CHUNKS; at += 256u) {
            put_partial(record * 2u * CHUNKS + at, merged[at]);
        }
    }
}
