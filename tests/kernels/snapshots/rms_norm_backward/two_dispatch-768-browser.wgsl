// With given statistics, one reading gives a column's sums over rows and a row's sums over columns. A workgroup that
// walks down a tile of columns finishes the former and stores its share of the latter.

enable subgroups;
requires subgroup_id;

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    dy_start: u32,
    stats_start: u32,
    dx_start: u32,
    parts_start: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> stats: array<f32>;
@group(0) @binding(5) var<storage, read_write> dx: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> dweight: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> dbias: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> parts: array<f32>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

// The set of workgroup memory for the reductions of this row, 0 or 1.
var<private> turn: u32;

fn next_turn() {
    turn = 1u - turn;
}

alias Vec = vec4<f32>;
alias Live = bool;

const THREADS = 16u;  // invocations per row
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

const CHUNKS = 192u;  // vec4 per row
const TILES = 12u;  // workgroups that walk down columns
const TOGETHER = 16u;  // rows that a workgroup walks down at a time
const BLOCKS = 1u;  // workgroups of a row

fn saved_stats(row: u32) -> f32 {
    return stats[params.stats_start + row];
}

var<workgroup> share_of_rows_partials: array<vec4<f32>, 128>;

fn share_of_rows(own: vec4<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec4<f32> {
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
    if (subgroup_size < THREADS) {
        if (lane == 0u) { share_of_rows_partials[turn * 64u + place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = share_of_rows_partials[turn * 64u + first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + share_of_rows_partials[turn * 64u + first + i];
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
    }
    return value;
}

var<workgroup> join_shares_partials: array<f32, 128>;

fn join_shares(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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
    if (subgroup_size < THREADS) {
        if (lane == 0u) { join_shares_partials[turn * 64u + place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = join_shares_partials[turn * 64u + first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + join_shares_partials[turn * 64u + first + i];
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
    }
    return value;
}

fn store_dweight(chunk: u32, value: vec4<f32>) {
    dweight[chunk] = value;
}

fn store_dbias(chunk: u32, value: vec4<f32>) {
    dbias[chunk] = value;
}

var<workgroup> dweight_sums: array<vec4<f32>, 256>;
var<workgroup> dbias_sums: array<vec4<f32>, 256>;

@compute @workgroup_size(256)
fn down_columns(
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
    let tile = workgroup;
    let chunk = tile * THREADS + thread;
    let exists = chunk < CHUNKS;
    let column = min(chunk, CHUNKS - 1u);
    let share = place / THREADS;
    let weight = load_weight(0u, column);
    var dweight = Vec();
    var dbias = Vec();
    // The loads of a batch of rows overlap, and so do their reductions.
    for (var first = 0u; first < params.rows; first += 4u * TOGETHER) {
        var shares = vec4<f32>();
        let index0 = first + 0u * TOGETHER + share;
        let row0 = min(index0, params.rows - 1u);
        let x0 = load_x(row0, 0u, column);
        let dy0 = load_dy(row0, 0u, column);
        let saved0 = saved_stats(row0);
        let index1 = first + 1u * TOGETHER + share;
        let row1 = min(index1, params.rows - 1u);
        let x1 = load_x(row1, 0u, column);
        let dy1 = load_dy(row1, 0u, column);
        let saved1 = saved_stats(row1);
        let index2 = first + 2u * TOGETHER + share;
        let row2 = min(index2, params.rows - 1u);
        let x2 = load_x(row2, 0u, column);
        let dy2 = load_dy(row2, 0u, column);
        let saved2 = saved_stats(row2);
        let index3 = first + 3u * TOGETHER + share;
        let row3 = min(index3, params.rows - 1u);
        let x3 = load_x(row3, 0u, column);
        let dy3 = load_dy(row3, 0u, column);
        let saved3 = saved_stats(row3);
        if (exists && index0 < params.rows) {
    let rstd = saved0;
            let xhat = x0 * rstd;
            let g = dy0 * weight;
            dweight += dy0 * xhat;
            dbias += dy0;
            shares[0] = total(g * xhat) * PER_COLUMN;
        }
        if (exists && index1 < params.rows) {
    let rstd = saved1;
            let xhat = x1 * rstd;
            let g = dy1 * weight;
            dweight += dy1 * xhat;
            dbias += dy1;
            shares[1] = total(g * xhat) * PER_COLUMN;
        }
        if (exists && index2 < params.rows) {
    let rstd = saved2;
            let xhat = x2 * rstd;
            let g = dy2 * weight;
            dweight += dy2 * xhat;
            dbias += dy2;
            shares[2] = total(g * xhat) * PER_COLUMN;
        }
        if (exists && index3 < params.rows) {
    let rstd = saved3;
            let xhat = x3 * rstd;
            let g = dy3 * weight;
            dweight += dy3 * xhat;
            dbias += dy3;
            shares[3] = total(g * xhat) * PER_COLUMN;
        }
        let found = share_of_rows(shares, place, lane, subgroup_size);
        if (thread == 0u) {
            if (index0 < params.rows) {
                let at = (row0 * TILES + tile) * 1u;
                parts[at + 0u] = found[0];
            }
            if (index1 < params.rows) {
                let at = (row1 * TILES + tile) * 1u;
                parts[at + 0u] = found[1];
            }
            if (index2 < params.rows) {
                let at = (row2 * TILES + tile) * 1u;
                parts[at + 0u] = found[2];
            }
            if (index3 < params.rows) {
                let at = (row3 * TILES + tile) * 1u;
                parts[at + 0u] = found[3];
            }
        }
        next_turn();
    }
        dweight_sums[place] = dweight;
        dbias_sums[place] = dbias;
        workgroupBarrier();
        if (share < 8u) {
            dweight_sums[place] += dweight_sums[place + 128u];
            dbias_sums[place] += dbias_sums[place + 128u];
        }
        workgroupBarrier();
        if (share < 4u) {
            dweight_sums[place] += dweight_sums[place + 64u];
            dbias_sums[place] += dbias_sums[place + 64u];
        }
        workgroupBarrier();
        if (share < 2u) {
            dweight_sums[place] += dweight_sums[place + 32u];
            dbias_sums[place] += dbias_sums[place + 32u];
        }
        workgroupBarrier();
        if (share < 1u) {
            dweight_sums[place] += dweight_sums[place + 16u];
            dbias_sums[place] += dbias_sums[place + 16u];
        }
        workgroupBarrier();
        if (share == 0u && chunk < CHUNKS) {
            store_dweight(chunk, dweight_sums[place]);
            store_dbias(chunk, dbias_sums[place]);
        }
}

var<workgroup> shares_of_row: array<f32, TOGETHER>;

@compute @workgroup_size(256)
fn along_rows(
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
    let item = workgroup;
    let row = item / BLOCKS;
    let begin = item % BLOCKS * 1024u + place;
    let chunk0 = min(begin + 0u, CHUNKS - 1u);
    let x0 = load_x(row, 0u, chunk0);
    let dy0 = load_dy(row, 0u, chunk0);
    let chunk1 = min(begin + 256u, CHUNKS - 1u);
    let x1 = load_x(row, 0u, chunk1);
    let dy1 = load_dy(row, 0u, chunk1);
    let chunk2 = min(begin + 512u, CHUNKS - 1u);
    let x2 = load_x(row, 0u, chunk2);
    let dy2 = load_dy(row, 0u, chunk2);
    let chunk3 = min(begin + 768u, CHUNKS - 1u);
    let x3 = load_x(row, 0u, chunk3);
    let dy3 = load_dy(row, 0u, chunk3);
    let saved = saved_stats(row);
    let rstd = saved;
    var own = f32();
    for (var tile = place; tile < TILES; tile += 256u) {
        let at = (row * TILES + tile) * 1u;
        own += parts[at];
    }
    let share = join_shares(own, place, lane, subgroup_size);
    if (thread == 0u) { shares_of_row[place / THREADS] = share; }
    workgroupBarrier();
    var joined = shares_of_row[0];
    for (var other = 1u; other < TOGETHER; other++) {
        joined += shares_of_row[other];
    }
    {
            let xhat = x0 * rstd;
            let g = dy0 * load_weight(0u, chunk0);
        let dx_value = (g - xhat * joined) * rstd;
        store_dx(row, begin + 0u < CHUNKS, 0u, chunk0, dx_value);
    }
    {
            let xhat = x1 * rstd;
            let g = dy1 * load_weight(0u, chunk1);
        let dx_value = (g - xhat * joined) * rstd;
        store_dx(row, begin + 256u < CHUNKS, 0u, chunk1, dx_value);
    }
    {
            let xhat = x2 * rstd;
            let g = dy2 * load_weight(0u, chunk2);
        let dx_value = (g - xhat * joined) * rstd;
        store_dx(row, begin + 512u < CHUNKS, 0u, chunk2, dx_value);
    }
    {
            let xhat = x3 * rstd;
            let g = dy3 * load_weight(0u, chunk3);
        let dx_value = (g - xhat * joined) * rstd;
        store_dx(row, begin + 768u < CHUNKS, 0u, chunk3, dx_value);
    }
}
