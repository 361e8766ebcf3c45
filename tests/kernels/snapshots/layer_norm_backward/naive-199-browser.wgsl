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

// The number of the invocation's columns.
fn own_columns(thread: u32) -> f32 {
    return 199.0;
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

// A value of the row. Sums of differences from it stay small even if the row is far from 0, so adding many terms costs
// few digits (Chan, Golub and LeVeque 1983, shifted data). Differences from a value that masks a column would overflow.
fn pivot_of(row: u32) -> f32 {
    let first = load_x(row, 0u, 0u);
    let value = first;
    return select(value, 0.0, abs(value) > 1e35);
}

const SCALE = 0.0625;

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

fn sum_x(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    return value;
}

fn sum_deviations(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
    var value = own;
    return value;
}

fn sum_gradients(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
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

    let row_pivot = pivot_of(row);
    var pivot = middle_of(load_x(row, 0u, thread), load_x(row, 1u, thread), load_x(row, 2u, thread));
    var sum = Vec();
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        let d = fma(h, Vec(SCALE), -Vec(pivot * SCALE));
        sum += d;
        squares += d * d;
        if (j % 16u == 15u && access(j, thread) < ACCESSES - 1u) {
            let own = vec2(sum, squares);
            let count = f32(1u * (j + 1u));
            let better = pivot + own.x / (count * SCALE);
            if (own.y < 1e38) {
                let sums = moved(count, own, fma(pivot, SCALE, -(better * SCALE)));
                sum = Vec();
                squares = Vec();
                sum = sums.x;
                squares = sums.y;
                pivot = better;
            }
        }
    }
    let count = own_columns(thread);
    let own = vec2(sum, squares);
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
    var across = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let xhat = (load_x(row, j, thread) - mean - low) * rstd;
        let g = load_dy(row, j, thread);
        along += g * xhat * PER_COLUMN;
        across += g * PER_COLUMN;
    }
    let at = params.row_sums_start + row * 5u;
    let means = sum_gradients(vec2(along, across), place, lane, subgroup_size);
    if (thread == 0u && row_exists) {
        row_sums[at] = rstd;
        row_sums[at + 1u] = means.x;
        row_sums[at + 2u] = mean;
        row_sums[at + 3u] = low;
        row_sums[at + 4u] = means.y;
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
        let rstd0 = row_sums[params.row_sums_start + row0 * 5u + 0u];
        let mean_gx0 = row_sums[params.row_sums_start + row0 * 5u + 1u];
        let mean0 = row_sums[params.row_sums_start + row0 * 5u + 2u];
        let low0 = row_sums[params.row_sums_start + row0 * 5u + 3u];
        let mean_g0 = row_sums[params.row_sums_start + row0 * 5u + 4u];
        {
            let xhat = (x0 - mean0 - low0) * rstd0;
            let g = dy0;
            let dx_value = (g - xhat * mean_gx0 - mean_g0) * rstd0;
            store_dx(row0, exists, 0u, thread, dx_value);
        }
    }
}
