// A part needs its row's statistics, which are only known after all parts are read. So the sums of a part are stored in
// a form that can be moved to the row's mean afterwards.

enable subgroups;
requires subgroup_id;

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    dy_start: u32,
    dx_start: u32,
    parts_start: u32,
    row_sums_start: u32,
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
@group(0) @binding(7) var<storage, read_write> parts: array<f32>;
@group(0) @binding(8) var<storage, read_write> row_sums: array<f32>;
@group(0) @binding(9) var<storage, read_write> partials: array<vec4<f32>>;

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

// `value` in columns that exist, `otherwise` in the others.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return select(otherwise, value, live(j, thread));
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let raw = x[(params.x_start + row * COLS) / 4u + inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn load_dy(row: u32, j: u32, thread: u32) -> Vec {
    let raw = dy[(params.dy_start + row * COLS) / 4u + inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn load_weight(j: u32, thread: u32) -> Vec {
    let raw = weight[inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn store_dx(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = (params.dx_start + row * COLS) / 4u + access(j, thread);
    if (row_exists && live(j, thread)) {
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

fn store_partial(record: u32, sum: u32, j: u32, thread: u32, value: Vec) {
    if (live(j, thread)) { put_partial((record * 2u + sum) * CHUNKS + access(j, thread), value); }
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

var<workgroup> sum_gradients_partials: array<f32, 64>;

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
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
        value = value + other;
    }
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_gradients_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_gradients_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_gradients_partials[first + i];
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

    let x0 = load_x(row, first + 0u, thread);
    let dy0 = load_dy(row, first + 0u, thread);
    var squares = x0 * (x0 * PER_COLUMN);
    let part_spread = sum_squares(total(squares), place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        let at = params.parts_start + (row * PARTS + part) * 2u;
        parts[at] = part_spread;
    }

    var along = Vec();
    let g0 = dy0 * load_weight(first + 0u, thread);
    along += g0 * x0 * PER_COLUMN;
    let gradients = sum_gradients(total(along), place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        let at = params.parts_start + (row * PARTS + part) * 2u + 1u;
        parts[at] = gradients;
    }
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

var<workgroup> join_gradients_partials: array<f32, 64>;

fn join_gradients(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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
        if (lane == 0u) { join_gradients_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = join_gradients_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + join_gradients_partials[first + i];
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
fn join(
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

    let records = params.parts_start + row * 2u * PARTS;
    var squares_of_parts = 0.0;
    for (var other = thread; other < PARTS; other += THREADS) {
        squares_of_parts += parts[records + 2u * other];
    }
    let variance = sum_spreads(squares_of_parts, place, lane, subgroup_size);
    let rstd = inverseSqrt(variance + params.eps);
    var own = 0.0;
    for (var other = thread; other < PARTS; other += THREADS) {
        let at = records + 2u * other;
        own += parts[at + 1u];
    }
    let joined = join_gradients(own, place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        let at = params.row_sums_start + row * 2u;
        row_sums[at] = rstd;
        row_sums[at + 1u] = joined * rstd;
    }
}

@compute @workgroup_size(64)
fn columns_of_rows(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let item = workgroup;
    let thread = item % 3u * 64u + invocation;
    let group = item / 3u;
    // Columns past the row, and groups past the last, are not stored.
    let exists = thread < ACCESSES && group < params.partials_count;
    let weight = load_weight(0u, thread);
    var dweight_sum = Vec();
    var dbias_sum = Vec();
    // Rows at this distance are added up in one record. The loads of a batch of rows overlap.
    for (var first = group; first < params.rows; first += 4u * params.partials_count) {
        let row0 = first;
        let x0 = load_x(row0, 0u, thread);
        let dy0 = load_dy(row0, 0u, thread);
        let rstd0 = row_sums[params.row_sums_start + row0 * 2u + 0u];
        let mean_gx0 = row_sums[params.row_sums_start + row0 * 2u + 1u];
        let row1 = min(first + 1u * params.partials_count, params.rows - 1u);
        let x1 = load_x(row1, 0u, thread);
        let dy1 = load_dy(row1, 0u, thread);
        let rstd1 = row_sums[params.row_sums_start + row1 * 2u + 0u];
        let mean_gx1 = row_sums[params.row_sums_start + row1 * 2u + 1u];
        let row2 = min(first + 2u * params.partials_count, params.rows - 1u);
        let x2 = load_x(row2, 0u, thread);
        let dy2 = load_dy(row2, 0u, thread);
        let rstd2 = row_sums[params.row_sums_start + row2 * 2u + 0u];
        let mean_gx2 = row_sums[params.row_sums_start + row2 * 2u + 1u];
        let row3 = min(first + 3u * params.partials_count, params.rows - 1u);
        let x3 = load_x(row3, 0u, thread);
        let dy3 = load_dy(row3, 0u, thread);
        let rstd3 = row_sums[params.row_sums_start + row3 * 2u + 0u];
        let mean_gx3 = row_sums[params.row_sums_start + row3 * 2u + 1u];
        {
            let xhat = x0 * rstd0;
            let g = dy0 * weight;
            let dx_value = (g - xhat * mean_gx0) * rstd0;
            store_dx(row0, exists, 0u, thread, dx_value);
            dweight_sum += dy0 * xhat;
            dbias_sum += dy0;
        }
        if (first + 1u * params.partials_count < params.rows) {
            let xhat = x1 * rstd1;
            let g = dy1 * weight;
            let dx_value = (g - xhat * mean_gx1) * rstd1;
            store_dx(row1, exists, 0u, thread, dx_value);
            dweight_sum += dy1 * xhat;
            dbias_sum += dy1;
        }
        if (first + 2u * params.partials_count < params.rows) {
            let xhat = x2 * rstd2;
            let g = dy2 * weight;
            let dx_value = (g - xhat * mean_gx2) * rstd2;
            store_dx(row2, exists, 0u, thread, dx_value);
            dweight_sum += dy2 * xhat;
            dbias_sum += dy2;
        }
        if (first + 3u * params.partials_count < params.rows) {
            let xhat = x3 * rstd3;
            let g = dy3 * weight;
            let dx_value = (g - xhat * mean_gx3) * rstd3;
            store_dx(row3, exists, 0u, thread, dx_value);
            dweight_sum += dy3 * xhat;
            dbias_sum += dy3;
        }
    }
    if (exists) {
        store_partial(group, 0u, 0u, thread, dweight_sum);
        store_partial(group, 1u, 0u, thread, dbias_sum);
    }
}
