// `groups` workgroups share a column's sum, and their partial sums are added at the end. A row may be as long as a
// buffer.

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
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;
@group(0) @binding(4) var<storage, read_write> row_sums: array<f32>;
@group(0) @binding(5) var<storage, read_write> partials: array<f32>;

const COLS = 199u;
const PER_COLUMN = 1.0 / f32(COLS);

// Columns of other rows in the row's first chunk: the row's start modulo four elements.
var<private> row_shift: u32;

alias Vec = vec4<f32>;
alias Live = vec4<bool>;

const THREADS = 256u;  // invocations per row
const STEPS = 1u;  // Vecs per invocation

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The number of the invocation's Vec at step j, at most the number of the row's last Vec.
fn inside(j: u32, thread: u32) -> u32 {
    return min(access(j, thread), (row_shift + COLS - 1u) / 4u);
}

// The columns of step j; columns before the row's first wrap to numbers past its last.
fn columns(j: u32, thread: u32) -> vec4<u32> {
    return vec4(4u * access(j, thread) - row_shift) + vec4(0u, 1u, 2u, 3u);
}

// For each of the invocation's columns at step j, whether it exists.
fn live(j: u32, thread: u32) -> Live {
    return columns(j, thread) < vec4(COLS);
}

// The number of the invocation's columns.
fn own_columns(thread: u32) -> f32 {
    let last = (row_shift + COLS - 1u) / 4u;
    let columns = 4u * ((last + THREADS - thread) / THREADS);
    let before = select(0u, row_shift, thread == 0u);
    return f32(columns - before - select(0u, 4u * (last + 1u) - row_shift - COLS, thread == last % THREADS));
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

// A value of the row. Sums of differences from it stay small even if the row is far from 0, so adding many terms costs
// few digits (Chan, Golub and LeVeque 1983, shifted data). Differences from a value that masks a column would overflow.
fn pivot_of(row: u32) -> f32 {
    let first = load_x(row, 0u, 0u);
    let value = first[row_shift];
    return select(value, 0.0, abs(value) > 1e35);
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
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

var<workgroup> sum_x_partials: array<f32, 256>;

fn sum_x(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    let first = place - place % THREADS;
    sum_x_partials[place] = value;
    workgroupBarrier();
    // 256 partials become 32: an invocation writes only where it alone reads.
    if (place - first < 32u) {
        value = value + sum_x_partials[place + 32u];
        value = value + sum_x_partials[place + 64u];
        value = value + sum_x_partials[place + 96u];
        value = value + sum_x_partials[place + 128u];
        value = value + sum_x_partials[place + 160u];
        value = value + sum_x_partials[place + 192u];
        value = value + sum_x_partials[place + 224u];
        sum_x_partials[place] = value;
    }
    workgroupBarrier();
    // 32 partials become 4: an invocation writes only where it alone reads.
    if (place - first < 4u) {
        value = value + sum_x_partials[place + 4u];
        value = value + sum_x_partials[place + 8u];
        value = value + sum_x_partials[place + 12u];
        value = value + sum_x_partials[place + 16u];
        value = value + sum_x_partials[place + 20u];
        value = value + sum_x_partials[place + 24u];
        value = value + sum_x_partials[place + 28u];
        sum_x_partials[place] = value;
    }
    workgroupBarrier();
    value = sum_x_partials[first];
    value = value + sum_x_partials[first + 1u];
    value = value + sum_x_partials[first + 2u];
    value = value + sum_x_partials[first + 3u];
    return value;
}

var<workgroup> sum_deviations_partials: array<vec2<f32>, 256>;

fn sum_deviations(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
    var value = own;
    let first = place - place % THREADS;
    sum_deviations_partials[place] = value;
    workgroupBarrier();
    // 256 partials become 32: an invocation writes only where it alone reads.
    if (place - first < 32u) {
        value = value + sum_deviations_partials[place + 32u];
        value = value + sum_deviations_partials[place + 64u];
        value = value + sum_deviations_partials[place + 96u];
        value = value + sum_deviations_partials[place + 128u];
        value = value + sum_deviations_partials[place + 160u];
        value = value + sum_deviations_partials[place + 192u];
        value = value + sum_deviations_partials[place + 224u];
        sum_deviations_partials[place] = value;
    }
    workgroupBarrier();
    // 32 partials become 4: an invocation writes only where it alone reads.
    if (place - first < 4u) {
        value = value + sum_deviations_partials[place + 4u];
        value = value + sum_deviations_partials[place + 8u];
        value = value + sum_deviations_partials[place + 12u];
        value = value + sum_deviations_partials[place + 16u];
        value = value + sum_deviations_partials[place + 20u];
        value = value + sum_deviations_partials[place + 24u];
        value = value + sum_deviations_partials[place + 28u];
        sum_deviations_partials[place] = value;
    }
    workgroupBarrier();
    value = sum_deviations_partials[first];
    value = value + sum_deviations_partials[first + 1u];
    value = value + sum_deviations_partials[first + 2u];
    value = value + sum_deviations_partials[first + 3u];
    return value;
}

var<workgroup> sum_gradients_partials: array<vec2<f32>, 256>;

fn sum_gradients(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
    var value = own;
    let first = place - place % THREADS;
    sum_gradients_partials[place] = value;
    workgroupBarrier();
    // 256 partials become 32: an invocation writes only where it alone reads.
    if (place - first < 32u) {
        value = value + sum_gradients_partials[place + 32u];
        value = value + sum_gradients_partials[place + 64u];
        value = value + sum_gradients_partials[place + 96u];
        value = value + sum_gradients_partials[place + 128u];
        value = value + sum_gradients_partials[place + 160u];
        value = value + sum_gradients_partials[place + 192u];
        value = value + sum_gradients_partials[place + 224u];
        sum_gradients_partials[place] = value;
    }
    workgroupBarrier();
    // 32 partials become 4: an invocation writes only where it alone reads.
    if (place - first < 4u) {
        value = value + sum_gradients_partials[place + 4u];
        value = value + sum_gradients_partials[place + 8u];
        value = value + sum_gradients_partials[place + 12u];
        value = value + sum_gradients_partials[place + 16u];
        value = value + sum_gradients_partials[place + 20u];
        value = value + sum_gradients_partials[place + 24u];
        value = value + sum_gradients_partials[place + 28u];
        sum_gradients_partials[place] = value;
    }
    workgroupBarrier();
    value = sum_gradients_partials[first];
    value = value + sum_gradients_partials[first + 1u];
    value = value + sum_gradients_partials[first + 2u];
    value = value + sum_gradients_partials[first + 3u];
    return value;
}

@compute @workgroup_size(256)
fn rows(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let subgroup_size = 1u;  // without subgroups, every invocation counts as a subgroup
    let lane = 0u;
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place;
    let row_index = workgroup;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
    row_shift = (params.x_start + row_index * COLS) % 4u;

    let row_pivot = pivot_of(row);
    var pivot = middle_of(where_live(load_x(row, 0u, thread), Vec(row_pivot), 0u, thread)[0], where_live(load_x(row, 0u, thread), Vec(row_pivot), 0u, thread)[3], where_live(load_x(row, 0u, thread), Vec(row_pivot), 0u, thread)[2]);
    var sum = Vec();
    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        let d = where_live(fma(h, Vec(SCALE), -Vec(pivot * SCALE)), Vec(), j, thread);
        sum += d;
        squares += d * d;
        if (j % 16u == 15u && access(j, thread) < (row_shift + COLS - 1u) / 4u) {
            let own = vec2(total(sum), total(squares));
            let count = f32(4u * (j + 1u) - select(0u, row_shift, thread == 0u));
            let better = pivot + own.x / (count * SCALE);
            if (own.y < 1e38) {
                let sums = moved(count, own, fma(pivot, SCALE, -(better * SCALE)));
                sum = Vec();
                squares = Vec();
                sum.x = sums.x;
                squares.x = sums.y;
                pivot = better;
            }
        }
    }
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
    var across = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let xhat = (load_x(row, j, thread) - mean - low) * rstd;
        let g = load_dy(row, j, thread);
        along += g * xhat * PER_COLUMN;
        across += g * PER_COLUMN;
    }
    let at = params.row_sums_start + row * 5u;
    let means = sum_gradients(vec2(total(along), total(across)), place, lane, subgroup_size);
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
    let thread = item % 1u * 64u + invocation;
    let group = item / 1u;
    // Columns past the row, and groups past the last, are not stored.
    let exists = thread < (COLS + 6u) / 4u && group < params.partials_count;
    row_shift = (params.x_start + group * COLS) % 4u;
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
