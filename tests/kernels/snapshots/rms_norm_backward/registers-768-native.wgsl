// The number of workgroups is chosen to fill the adapter, not the problem: each keeps a record of sums in
// registers while it walks over its rows, and the fewer records there are, the less there is to finish.

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

// Which set of workgroup memory the reductions of this row use, 0 or 1.
var<private> turn: u32;

fn next_turn() {
    turn = 1u - turn;
}

alias Vec = vec4<f32>;
alias Live = bool;

const THREADS = 32u;  // invocations per row
const ACCESSES = COLS / 4u;  // Vecs per row

// Which of the row's Vecs the invocation has at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The same; past the row's last Vec it is that one.
fn inside(j: u32, thread: u32) -> u32 {
    return access(j, thread);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return access(j, thread) < ACCESSES;
}

// An access as it lies in memory, and step j of it.
fn fetch_x(row: u32, j: u32, thread: u32) -> vec4<f32> {
    return x[(params.x_start + row * COLS) / 4u + access(j, thread)];
}

// An access as it lies in memory, and step j of it.
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

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

const CHUNKS = 192u;  // vec4 per row of a record

// The slices of a split problem follow one another and add to the same records.
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

var<workgroup> sum_squares_partials: array<vec2<f32>, 128>;

fn sum_squares(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
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
    }
    return value;
}

// Where the rows of a workgroup add up their sums.
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

    let first = min(record * 8u + place / THREADS, params.rows - 1u);
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
    // A dispatch of two dimensions may have more workgroups than there are records.
    let rows = select(0u, params.rows, record < params.partials_count);
    for (var group = record; group * 8u < rows; group += params.partials_count) {
    let row_index = group * 8u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
        // The next row travels while this one is worked on.
        let next = min((group + params.partials_count) * 8u + place / THREADS, params.rows - 1u);
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

    var squares = Vec();
    var along = Vec();
    let g0 = dy0 * weight0;
    squares += x0 * (x0 * PER_COLUMN);
    along += g0 * x0;
    let g1 = dy1 * weight1;
    squares += x1 * (x1 * PER_COLUMN);
    along += g1 * x1;
    let g2 = dy2 * weight2;
    squares += x2 * (x2 * PER_COLUMN);
    along += g2 * x2;
    let g3 = dy3 * weight3;
    squares += x3 * (x3 * PER_COLUMN);
    along += g3 * x3;
    let g4 = dy4 * weight4;
    squares += x4 * (x4 * PER_COLUMN);
    along += g4 * x4;
    let g5 = dy5 * weight5;
    squares += x5 * (x5 * PER_COLUMN);
    along += g5 * x5;
    let sums = sum_squares(vec2(total(squares), total(along) * PER_COLUMN), place, lane, subgroup_size);
    let rstd = inverseSqrt(sums.x + params.eps);
    let slope = -(sums.y * rstd) * rstd;
        let xhat0 = x0 * rstd;
        let dx0 = g0 * rstd + (xhat0 * slope);
        dweight0 += select(Vec(), dy0 * xhat0, row_exists);
        dbias0 += select(Vec(), dy0, row_exists);
    store_dx(row, row_exists, 0u, thread, dx0);
        let xhat1 = x1 * rstd;
        let dx1 = g1 * rstd + (xhat1 * slope);
        dweight1 += select(Vec(), dy1 * xhat1, row_exists);
        dbias1 += select(Vec(), dy1, row_exists);
    store_dx(row, row_exists, 1u, thread, dx1);
        let xhat2 = x2 * rstd;
        let dx2 = g2 * rstd + (xhat2 * slope);
        dweight2 += select(Vec(), dy2 * xhat2, row_exists);
        dbias2 += select(Vec(), dy2, row_exists);
    store_dx(row, row_exists, 2u, thread, dx2);
        let xhat3 = x3 * rstd;
        let dx3 = g3 * rstd + (xhat3 * slope);
        dweight3 += select(Vec(), dy3 * xhat3, row_exists);
        dbias3 += select(Vec(), dy3, row_exists);
    store_dx(row, row_exists, 3u, thread, dx3);
        let xhat4 = x4 * rstd;
        let dx4 = g4 * rstd + (xhat4 * slope);
        dweight4 += select(Vec(), dy4 * xhat4, row_exists);
        dbias4 += select(Vec(), dy4, row_exists);
    store_dx(row, row_exists, 4u, thread, dx4);
        let xhat5 = x5 * rstd;
        let dx5 = g5 * rstd + (xhat5 * slope);
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
    if (place / THREADS == 4u) {
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
    if (place / THREADS == 5u) {
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
    if (place / THREADS == 6u) {
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
    if (place / THREADS == 7u) {
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
        for (var at = place; at < 2u * CHUNKS; at += 256u) {
            put_partial(record * 2u * CHUNKS + at, merged[at]);
        }
    }
}
