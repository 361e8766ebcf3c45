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
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;
@group(0) @binding(4) var<storage, read_write> partials: array<f32>;

const COLS = 199u;
const PER_COLUMN = 1.0 / f32(COLS);

// Columns of other rows in the row's first chunk: the row's start modulo four elements.
var<private> row_shift: u32;

// The set of workgroup memory for the reductions of this row, 0 or 1.
var<private> turn: u32;

fn next_turn() {
    turn = 1u - turn;
}

alias Vec = vec4<f32>;
alias Live = vec4<bool>;

const THREADS = 96u;  // invocations per row

const WHOLE_STEPS = 0u;  // those with no Vec past the row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The number of the invocation's Vec at step j, at most the number of the row's last Vec.
fn inside(j: u32, thread: u32) -> u32 {
    if (j < WHOLE_STEPS) { return access(j, thread); }
    return min(access(j, thread), (row_shift + COLS - 1u) / 4u);
}

// The columns of step j; columns before the row's first wrap to numbers past its last.
fn columns(j: u32, thread: u32) -> vec4<u32> {
    return vec4(4u * access(j, thread) - row_shift) + vec4(0u, 1u, 2u, 3u);
}

// For each of the invocation's columns at step j, whether it exists.
fn live(j: u32, thread: u32) -> Live {
    if (0u < j && j < WHOLE_STEPS) { return Live(true); }
    return columns(j, thread) < vec4(COLS);
}

// `value` in columns that exist, `otherwise` in the others.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return select(otherwise, value, live(j, thread));
}

// An access in its storage format, and step j of it.
fn fetch_x(row: u32, j: u32, thread: u32) -> vec4<f32> {
    return x[(params.x_start + row * COLS) / 4u + inside(j, thread)];
}

fn x_of(raw: vec4<f32>, j: u32, thread: u32) -> Vec {
    return where_live(raw, Vec(), j, thread);
}

// An access in its storage format, and step j of it.
fn fetch_dy(row: u32, j: u32, thread: u32) -> vec4<f32> {
    return dy[(params.dy_start + row * COLS) / 4u + inside(j, thread)];
}

fn dy_of(raw: vec4<f32>, j: u32, thread: u32) -> Vec {
    return where_live(raw, Vec(), j, thread);
}

fn store_dx(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = (params.dx_start + row * COLS) / 4u + access(j, thread);
    let wanted = live(j, thread) & vec4(row_exists);
    if (all(wanted)) {
        dx[4u * at + 0u] = f32(value.x);
        dx[4u * at + 1u] = f32(value.y);
        dx[4u * at + 2u] = f32(value.z);
        dx[4u * at + 3u] = f32(value.w);
    } else {
        if (wanted.x) { dx[4u * at + 0u] = f32(value.x); }
        if (wanted.y) { dx[4u * at + 1u] = f32(value.y); }
        if (wanted.z) { dx[4u * at + 2u] = f32(value.z); }
        if (wanted.w) { dx[4u * at + 3u] = f32(value.w); }
    }
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

var<workgroup> sum_squares_partials: array<f32, 48>;

fn sum_squares(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    value = subgroupAdd(value);
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_squares_partials[turn * 24u + place / subgroup_size] = value; }
        workgroupBarrier();
        value = f32();
        for (var i = lane; i < (THREADS - 1u) / subgroup_size + 1u; i += subgroup_size) {
            value = value + sum_squares_partials[turn * 24u + i];
        }
        value = subgroupAdd(value);
    }
    return value;
}

var<workgroup> sum_gradients_partials: array<f32, 48>;

fn sum_gradients(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    value = subgroupAdd(value);
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_gradients_partials[turn * 24u + place / subgroup_size] = value; }
        workgroupBarrier();
        value = f32();
        for (var i = lane; i < (THREADS - 1u) / subgroup_size + 1u; i += subgroup_size) {
            value = value + sum_gradients_partials[turn * 24u + i];
        }
        value = subgroupAdd(value);
    }
    return value;
}

@compute @workgroup_size(96)
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
    let record = workgroup;
    row_shift = (params.x_start + record * COLS) % 4u;

    let first = min(record * 1u, params.rows - 1u);
    var next_x0 = fetch_x(first, 0u, thread);
    var next_dy0 = fetch_dy(first, 0u, thread);
    // A dispatch of two dimensions may have more workgroups than there are records.
    let rows = select(0u, params.rows, record < params.partials_count);
    for (var group = record; group * 1u < rows; group += params.partials_count) {
    let row_index = group;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
    row_shift = (params.x_start + row_index * COLS) % 4u;
        // The loads of the next row overlap the work on this one.
        let next = min((group + params.partials_count) * 1u, params.rows - 1u);
        let x0 = x_of(next_x0, 0u, thread);
        let dy0 = dy_of(next_dy0, 0u, thread);
        next_x0 = fetch_x(next, 0u, thread);
        next_dy0 = fetch_dy(next, 0u, thread);
    var squares = x0 * (x0 * PER_COLUMN);
    let rstd = inverseSqrt(sum_squares(total(squares), place, lane, subgroup_size) + params.eps);

        var along = Vec();
        let xhat0 = x0 * rstd;
        let g0 = dy0;
        along += g0 * xhat0;
        let slope = -sum_gradients(total(along) * PER_COLUMN, place, lane, subgroup_size) * rstd;
        let dx0 = g0 * rstd + (xhat0 * slope);
    store_dx(row, row_exists, 0u, thread, dx0);
        next_turn();
    }
}
