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
@group(0) @binding(3) var<storage, read> stats: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<vec4<f32>>;

const COLS = 200u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = vec4<f32>;
alias Live = bool;

const THREADS = 64u;  // invocations per row
const ACCESSES = COLS / 4u;  // Vecs per row

const WHOLE_STEPS = 0u;  // those with no Vec past the row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The number of the invocation's Vec at step j, at most the number of the row's last Vec.
fn inside(j: u32, thread: u32) -> u32 {
    if (j < WHOLE_STEPS) { return access(j, thread); }
    return min(access(j, thread), ACCESSES - 1u);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    if (j < WHOLE_STEPS) { return true; }
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

const TILES = 0u;  // workgroups that walk down columns

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
    if (32u < subgroup_size) {
        let other = subgroupShuffleXor(value, 32u);
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
    let thread = place % THREADS;
    let item = workgroup;
    {
    let row_index = (item - TILES) * 4u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
        let x0 = load_x(row, 0u, thread);
        let dy0 = load_dy(row, 0u, thread);
        let saved = saved_stats(row);
    let mean = saved.x;
    let low = saved.y;
    let rstd = saved.z;
        var along = Vec();
        let low_rstd = low * rstd;
        var across = Vec();
        let xhat0 = (x0 - mean) * rstd - low_rstd;
        let g0 = dy0;
        along += g0 * xhat0;
        across += g0;
        let means = sum_gradients(vec2(total(along), total(across)) * PER_COLUMN, place, lane, subgroup_size);
        let slope = -means.x * rstd;
        let level = -means.y * rstd;
        let dx0 = g0 * rstd + (xhat0 * slope + level);
    store_dx(row, row_exists, 0u, thread, dx0);
    }
}
