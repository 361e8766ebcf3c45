// Two workgroups read each element at about the same time, so the second read comes from the cache. If the data exceed
// the cache, two dispatches that read once are faster.

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
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> stats: array<f32>;
@group(0) @binding(5) var<storage, read_write> dx: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> dweight: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> dbias: array<vec4<f32>>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = vec4<f32>;

const THREADS = 32u;  // invocations per row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
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

const CHUNKS = 192u;  // vec4 per row
const TILES = 96u;  // workgroups that walk down columns
const TILE = 2u;  // vec4 across a tile
const DOWN = 128u;  // invocations that share a column's rows

fn saved_stats(row: u32) -> vec3<f32> {
    let at = params.stats_start + 3u * row;
    return vec3(stats[at], stats[at + 1u], stats[at + 2u]);
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
    let item = workgroup;
    if (item < TILES) {
        let chunk = item * TILE + place % TILE;
        let column = min(chunk, CHUNKS - 1u);  // columns past the row are not stored
        let share = place / TILE;
        var dweight = vec4<f32>();
        var dbias = vec4<f32>();
        // The loads of several rows overlap.
        for (var first = share; first < params.rows; first += 4u * DOWN) {
            let row0 = first;
            let dy0 = load_dy(row0, 0u, column);
            let x0 = load_x(row0, 0u, column);
            let saved0 = saved_stats(row0);
            let row1 = min(first + 1u * DOWN, params.rows - 1u);
            let dy1 = load_dy(row1, 0u, column);
            let x1 = load_x(row1, 0u, column);
            let saved1 = saved_stats(row1);
            let row2 = min(first + 2u * DOWN, params.rows - 1u);
            let dy2 = load_dy(row2, 0u, column);
            let x2 = load_x(row2, 0u, column);
            let saved2 = saved_stats(row2);
            let row3 = min(first + 3u * DOWN, params.rows - 1u);
            let dy3 = load_dy(row3, 0u, column);
            let x3 = load_x(row3, 0u, column);
            let saved3 = saved_stats(row3);
            {
    let mean = saved0.x;
    let low = saved0.y;
    let rstd = saved0.z;
                dweight += dy0 * ((x0 - mean) * rstd - low * rstd);
                dbias += dy0;
            }
            if (first + 1u * DOWN < params.rows) {
    let mean = saved1.x;
    let low = saved1.y;
    let rstd = saved1.z;
                dweight += dy1 * ((x1 - mean) * rstd - low * rstd);
                dbias += dy1;
            }
            if (first + 2u * DOWN < params.rows) {
    let mean = saved2.x;
    let low = saved2.y;
    let rstd = saved2.z;
                dweight += dy2 * ((x2 - mean) * rstd - low * rstd);
                dbias += dy2;
            }
            if (first + 3u * DOWN < params.rows) {
    let mean = saved3.x;
    let low = saved3.y;
    let rstd = saved3.z;
                dweight += dy3 * ((x3 - mean) * rstd - low * rstd);
                dbias += dy3;
            }
        }
        dweight_sums[place] = dweight;
        dbias_sums[place] = dbias;
        workgroupBarrier();
        if (share < 64u) {
            dweight_sums[place] += dweight_sums[place + 128u];
            dbias_sums[place] += dbias_sums[place + 128u];
        }
        workgroupBarrier();
        if (share < 32u) {
            dweight_sums[place] += dweight_sums[place + 64u];
            dbias_sums[place] += dbias_sums[place + 64u];
        }
        workgroupBarrier();
        if (share < 16u) {
            dweight_sums[place] += dweight_sums[place + 32u];
            dbias_sums[place] += dbias_sums[place + 32u];
        }
        workgroupBarrier();
        if (share < 8u) {
            dweight_sums[place] += dweight_sums[place + 16u];
            dbias_sums[place] += dbias_sums[place + 16u];
        }
        workgroupBarrier();
        if (share < 4u) {
            dweight_sums[place] += dweight_sums[place + 8u];
            dbias_sums[place] += dbias_sums[place + 8u];
        }
        workgroupBarrier();
        if (share < 2u) {
            dweight_sums[place] += dweight_sums[place + 4u];
            dbias_sums[place] += dbias_sums[place + 4u];
        }
        workgroupBarrier();
        if (share < 1u) {
            dweight_sums[place] += dweight_sums[place + 2u];
            dbias_sums[place] += dbias_sums[place + 2u];
        }
        workgroupBarrier();
        if (share == 0u && chunk < CHUNKS) {
            store_dweight(chunk, dweight_sums[place]);
            store_dbias(chunk, dbias_sums[place]);
        }
    } else {
    let row_index = (item - TILES) * 8u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
        let x0 = load_x(row, 0u, thread);
        let dy0 = load_dy(row, 0u, thread);
        let x1 = load_x(row, 1u, thread);
        let dy1 = load_dy(row, 1u, thread);
        let x2 = load_x(row, 2u, thread);
        let dy2 = load_dy(row, 2u, thread);
        let x3 = load_x(row, 3u, thread);
        let dy3 = load_dy(row, 3u, thread);
        let x4 = load_x(row, 4u, thread);
        let dy4 = load_dy(row, 4u, thread);
        let x5 = load_x(row, 5u, thread);
        let dy5 = load_dy(row, 5u, thread);
        let saved = saved_stats(row);
    let mean = saved.x;
    let low = saved.y;
    let rstd = saved.z;
        var along = Vec();
        let low_rstd = low * rstd;
        var across = Vec();
        let xhat0 = (x0 - mean) * rstd - low_rstd;
        let g0 = dy0 * load_weight(0u, thread);
        let xhat1 = (x1 - mean) * rstd - low_rstd;
        let g1 = dy1 * load_weight(1u, thread);
        let xhat2 = (x2 - mean) * rstd - low_rstd;
        let g2 = dy2 * load_weight(2u, thread);
        let xhat3 = (x3 - mean) * rstd - low_rstd;
        let g3 = dy3 * load_weight(3u, thread);
        let xhat4 = (x4 - mean) * rstd - low_rstd;
        let g4 = dy4 * load_weight(4u, thread);
        let xhat5 = (x5 - mean) * rstd - low_rstd;
        let g5 = dy5 * load_weight(5u, thread);
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
        let dx1 = g1 * rstd + (xhat1 * slope + level);
        let dx2 = g2 * rstd + (xhat2 * slope + level);
        let dx3 = g3 * rstd + (xhat3 * slope + level);
        let dx4 = g4 * rstd + (xhat4 * slope + level);
        let dx5 = g5 * rstd + (xhat5 * slope + level);
    store_dx(row, row_exists, 0u, thread, dx0);
    store_dx(row, row_exists, 1u, thread, dx1);
    store_dx(row, row_exists, 2u, thread, dx2);
    store_dx(row, row_exists, 3u, thread, dx3);
    store_dx(row, row_exists, 4u, thread, dx4);
    store_dx(row, row_exists, 5u, thread, dx5);
    }
}
