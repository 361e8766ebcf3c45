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

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

var<workgroup> sum_squares_partials: array<f32, 256>;

fn sum_squares(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    var value = own;
    let first = place - place % THREADS;
    sum_squares_partials[place] = value;
    workgroupBarrier();
    // 256 partials become 32: an invocation writes only where it alone reads.
    if (place - first < 32u) {
        value = value + sum_squares_partials[place + 32u];
        value = value + sum_squares_partials[place + 64u];
        value = value + sum_squares_partials[place + 96u];
        value = value + sum_squares_partials[place + 128u];
        value = value + sum_squares_partials[place + 160u];
        value = value + sum_squares_partials[place + 192u];
        value = value + sum_squares_partials[place + 224u];
        sum_squares_partials[place] = value;
    }
    workgroupBarrier();
    // 32 partials become 4: an invocation writes only where it alone reads.
    if (place - first < 4u) {
        value = value + sum_squares_partials[place + 4u];
        value = value + sum_squares_partials[place + 8u];
        value = value + sum_squares_partials[place + 12u];
        value = value + sum_squares_partials[place + 16u];
        value = value + sum_squares_partials[place + 20u];
        value = value + sum_squares_partials[place + 24u];
        value = value + sum_squares_partials[place + 28u];
        sum_squares_partials[place] = value;
    }
    workgroupBarrier();
    value = sum_squares_partials[first];
    value = value + sum_squares_partials[first + 1u];
    value = value + sum_squares_partials[first + 2u];
    value = value + sum_squares_partials[first + 3u];
    return value;
}

var<workgroup> sum_gradients_partials: array<f32, 256>;

fn sum_gradients(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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

    var squares = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        squares += h * (h * PER_COLUMN);
    }
    let rstd = inverseSqrt(sum_squares(total(squares), place, lane, subgroup_size) + params.eps);

    var along = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let xhat = (load_x(row, j, thread)) * rstd;
        let g = load_dy(row, j, thread);
        along += g * xhat * PER_COLUMN;
    }
    let at = params.row_sums_start + row * 2u;
    let mean_gx = sum_gradients(total(along), place, lane, subgroup_size);
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
