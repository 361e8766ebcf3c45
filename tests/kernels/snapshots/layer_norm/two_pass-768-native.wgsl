// The second sweep measures distances from the mean, so nothing large cancels. Its by-product, the sum
// of those distances, is what the rounding of the mean took away: with hi_lo_mean it is given back.

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    y_start: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = f32;
alias Live = bool;

const THREADS = 256u;  // invocations per row
const STEPS = 3u;  // Vecs per invocation
const ACCESSES = COLS;  // Vecs per row

// Which of the row's Vecs the invocation has at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The same; past the row's last Vec it is that one.
fn inside(j: u32, thread: u32) -> u32 {
    return access(j, thread);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return access(j, thread) < ACCESSES;
}

// `value` in the columns that exist, `otherwise` in those that do not.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return value;
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let raw = x[params.x_start + row * COLS + inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn load_weight(j: u32, thread: u32) -> Vec {
    let raw = weight[inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn load_bias(j: u32, thread: u32) -> Vec {
    let raw = bias[inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = params.y_start + row * COLS + access(j, thread);
    if (row_exists) {
        y[at] = value;
    }
}

fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    return load_x(row, j, thread);
}

// A value of the row. Sums of differences from it stay small where the row is far from 0, so that adding
// many terms one after another costs few digits (Chan, Golub and LeVeque 1983, shifted data). Differences
// from a value that masks the row would overflow.
fn pivot_of(row: u32) -> f32 {
    let first = load_input(row, 0u, 0u);
    let value = first;
    return select(value, 0.0, abs(value) > 1e35);
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return value;
}

// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized * load_weight(j, thread) + load_bias(j, thread);
}

const SCALE = 0.03125;

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

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let subgroup_size = 1u;  // without subgroups, every invocation is one of its own
    let lane = 0u;
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place;
    let row_index = workgroup;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    let pivot = pivot_of(row);
    var sum = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        sum += where_live(h - pivot, Vec(), j, thread);
    }
    let mean = pivot + sum_x(total(sum) * PER_COLUMN, place, lane, subgroup_size);

    var deviations = Vec();
    var spreads = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        let d = where_live(h - mean, Vec(), j, thread);
        deviations += d;
        spreads += d * (d * PER_COLUMN);
    }
    let sums = sum_deviations(vec2(total(deviations), total(spreads)), place, lane, subgroup_size);
    let deviation = sums.x;
    let spread = sums.y;
    let low = deviation / f32(COLS);
    // Past float32's range, infinity less infinity would be no number; and max() would make 0 of what is none.
    let variance = select(spread, max(spread - low * low, 0.0), spread < 1e38);
    let rstd = inverseSqrt(variance + params.eps);
    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        let y_value = affine((h - mean - low) * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }

}
