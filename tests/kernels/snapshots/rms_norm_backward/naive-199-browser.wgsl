// Two passes over the same arrays: along the rows, where neighbouring invocations read memory a row apart, and down the
// columns, where they read neighbouring elements, but each adds up a quarter of all rows one by one.

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    dy_start: u32,
    dx_start: u32,
    row_sums_start: u32,
    partials_count: u32,
    partials_kept: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;
@group(0) @binding(4) var<storage, read_write> row_sums: array<f32>;
@group(0) @binding(5) var<storage, read_write> partials: array<f32>;

const COLS = 199u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = f32;

const THREADS = 1u;  // invocations per row
const STEPS = 199u;  // Vecs per invocation
const ACCESSES = COLS;  // Vecs per row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    return x[params.x_start + row * COLS + access(j, thread)];
}

fn load_dy(row: u32, j: u32, thread: u32) -> Vec {
    return dy[params.dy_start + row * COLS + access(j, thread)];
}

fn store_dx(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = params.dx_start + row * COLS + access(j, thread);
    if (row_exists) {
        dx[at] = value;
    }
}

fn sum_squares(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    return value;
}

fn sum_gradients(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    return value;
}

@compute @workgroup_size(64)
fn rows(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let subgroup_size = 1u;  // without subgroups, every invocation counts as a subgroup
    let lane = 0u;
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place % THREADS;
    let row_index = workgroup * 64u + place / THREADS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        squares += h * (h * PER_COLUMN);
    }
    let rstd = inverseSqrt(sum_squares(squares, place, lane, subgroup_size) + params.eps);

    var along = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let xhat = (load_x(row, j, thread)) * rstd;
        let g = load_dy(row, j, thread);
        along += g * xhat * PER_COLUMN;
    }
    let at = params.row_sums_start + row * 2u;
    let mean_gx = sum_gradients(along, place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        row_sums[at] = rstd;
        row_sums[at + 1u] = mean_gx;
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
    let thread = item % 4u * 64u + invocation;
    let group = item / 4u;
    // Columns past the row, and groups past the last, are not stored.
    let exists = thread < ACCESSES && group < params.partials_count;
    // Rows at this distance are added up in one record. The loads of a batch of rows overlap.
    for (var first = group; first < params.rows; first += params.partials_count) {
        let row0 = first;
        let x0 = load_x(row0, 0u, thread);
        let dy0 = load_dy(row0, 0u, thread);
        let rstd0 = row_sums[params.row_sums_start + row0 * 2u + 0u];
        let mean_gx0 = row_sums[params.row_sums_start + row0 * 2u + 1u];
        {
            let xhat = x0 * rstd0;
            let g = dy0;
            let dx_value = (g - xhat * mean_gx0) * rstd0;
            store_dx(row0, exists, 0u, thread, dx_value);
        }
    }
}
