// Registers have no addresses, so the template unrolls each loop over the row, and each Vec has its own name. The layout
// refuses rows with more than 64 columns per invocation, which would not fit registers.

enable subgroups;
requires subgroup_id;

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    y_start: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

const COLS = 199u;
const PER_COLUMN = 1.0 / f32(COLS);

// Columns of other rows in the row's first chunk: the row's start modulo four elements.
var<private> row_shift: u32;

alias Vec = vec4<f32>;
alias Live = vec4<bool>;

const THREADS = 32u;  // invocations per row

const WHOLE_STEPS = 1u;  // those with no Vec past the row

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

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let raw = x[(params.x_start + row * COLS) / 4u + inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = (params.y_start + row * COLS) / 4u + access(j, thread);
    let wanted = live(j, thread) & vec4(row_exists);
    if (all(wanted)) {
        y[4u * at + 0u] = f32(value.x);
        y[4u * at + 1u] = f32(value.y);
        y[4u * at + 2u] = f32(value.z);
        y[4u * at + 3u] = f32(value.w);
    } else {
        if (wanted.x) { y[4u * at + 0u] = f32(value.x); }
        if (wanted.y) { y[4u * at + 1u] = f32(value.y); }
        if (wanted.z) { y[4u * at + 2u] = f32(value.z); }
        if (wanted.w) { y[4u * at + 3u] = f32(value.w); }
    }
}

fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    return load_x(row, j, thread);
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

// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized;
}

var<workgroup> partials: array<vec2<f32>, 8>;  // no subgroup has fewer than 4 lanes

// Sums over the row's invocations: first over each subgroup, then over the subgroups' sums.
fn row_sums(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
    let sums = subgroupAdd(own);
    if (lane == 0u) { partials[place / subgroup_size] = sums; }
    workgroupBarrier();
    var others = vec2<f32>();
    for (var i = lane; i < (THREADS - 1u) / subgroup_size + 1u; i += subgroup_size) {
        others += partials[i];
    }
    workgroupBarrier();  // before the next ones are written
    return subgroupAdd(others);
}

@compute @workgroup_size(32)
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
    let row_index = workgroup;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
    row_shift = (params.x_start + row_index * COLS) % 4u;

    // The only read of the row. No load waits for another.
    let h0 = load_input(row, 0u, thread);
    let h1 = load_input(row, 1u, thread);

    // The mean, as in two_pass: differences from a value of the row are small where the row is far from 0.
    let pivot = pivot_of(row);
    var sum = Vec();
    sum += where_live(h0 - pivot, Vec(), 0u, thread);
    sum += where_live(h1 - pivot, Vec(), 1u, thread);
    let mean = pivot + row_sums(vec2(total(sum) * PER_COLUMN, 0.0), place, lane, subgroup_size).x;

    // The variance. The sum of the distances gives the rounding error of the mean: the exact mean is mean + low.
    var distances = Vec();
    var squares = Vec();
    let d0 = where_live(h0 - mean, Vec(), 0u, thread);
    distances += d0;
    squares += d0 * (d0 * PER_COLUMN);
    let d1 = where_live(h1 - mean, Vec(), 1u, thread);
    distances += d1;
    squares += d1 * (d1 * PER_COLUMN);
    let sums = row_sums(vec2(total(distances), total(squares)), place, lane, subgroup_size);
    let low = sums.x / f32(COLS);
    let variance = select(sums.y, max(sums.y - low * low, 0.0), sums.y < 1e38);
    let rstd = inverseSqrt(variance + params.eps);

    let y0 = affine((d0 - low) * rstd, 0u, thread);
    store_y(row, row_exists, 0u, thread, y0);
    let y1 = affine((d1 - low) * rstd, 1u, thread);
    store_y(row, row_exists, 1u, thread, y1);
}
