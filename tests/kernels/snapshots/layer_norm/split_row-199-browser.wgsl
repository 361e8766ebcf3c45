// There is no barrier between workgroups, so they exchange data through memory and a second dispatch.

enable subgroups;
requires subgroup_id;

// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    y_start: u32,
    parts_start: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

const COLS = 199u;
const PER_COLUMN = 1.0 / f32(COLS);

// Columns of other rows in the row's first chunk: the row's start modulo four elements.
var<private> row_shift: u32;

alias Vec = vec4<f32>;
alias Live = vec4<bool>;

const THREADS = 256u;  // invocations per row
const STEPS = 4u;  // Vecs per invocation

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

const PARTS = 1u;  // workgroups of a row
const PART_COLUMNS = 4u * STEPS * THREADS;

// The number of the row's columns in a part; the last part may have none.
fn columns_in(part: u32) -> f32 {
    let begin = max(part * PART_COLUMNS, row_shift);
    let end = min((part + 1u) * PART_COLUMNS, row_shift + COLS);
    return f32(max(end, begin) - begin);
}
var<workgroup> sum_part_partials: array<f32, 64>;

fn sum_part(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
        value = value + other;
    }
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_part_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_part_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_part_partials[first + i];
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
        if (16u < lanes) {
            let other = subgroupShuffleXor(value, 16u);
            value = value + other;
        }
        if (32u < lanes) {
            let other = subgroupShuffleXor(value, 32u);
            value = value + other;
        }
    }
    return value;
}

var<workgroup> sum_deviations_partials: array<vec2<f32>, 64>;

fn sum_deviations(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
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
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
        value = value + other;
    }
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_deviations_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_deviations_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_deviations_partials[first + i];
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
        if (16u < lanes) {
            let other = subgroupShuffleXor(value, 16u);
            value = value + other;
        }
        if (32u < lanes) {
            let other = subgroupShuffleXor(value, 32u);
            value = value + other;
        }
    }
    return value;
}

var<workgroup> sum_means_partials: array<f32, 64>;

fn sum_means(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
        value = value + other;
    }
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_means_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_means_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_means_partials[first + i];
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
        if (16u < lanes) {
            let other = subgroupShuffleXor(value, 16u);
            value = value + other;
        }
        if (32u < lanes) {
            let other = subgroupShuffleXor(value, 32u);
            value = value + other;
        }
    }
    return value;
}

var<workgroup> sum_spreads_partials: array<f32, 64>;

fn sum_spreads(own: f32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
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
    if (64u < subgroup_size) {
        let other = subgroupShuffleXor(value, 64u);
        value = value + other;
    }
    if (subgroup_size < THREADS) {
        if (lane == 0u) { sum_spreads_partials[place / subgroup_size] = value; }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;
        value = sum_spreads_partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = value + sum_spreads_partials[first + i];
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
        if (16u < lanes) {
            let other = subgroupShuffleXor(value, 16u);
            value = value + other;
        }
        if (32u < lanes) {
            let other = subgroupShuffleXor(value, 32u);
            value = value + other;
        }
    }
    return value;
}

@compute @workgroup_size(256)
fn measure(
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
    let row_index = workgroup / PARTS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
    row_shift = (params.x_start + row_index * COLS) % 4u;
    let part = workgroup % PARTS;
    let first = part * STEPS;

    let h0 = load_x(row, first + 0u, thread);
    let h1 = load_x(row, first + 1u, thread);
    let h2 = load_x(row, first + 2u, thread);
    let h3 = load_x(row, first + 3u, thread);
    let pivot = pivot_of(row);
    var sum = Vec();
    sum += where_live(h0 - pivot, Vec(), first + 0u, thread);
    sum += where_live(h1 - pivot, Vec(), first + 1u, thread);
    sum += where_live(h2 - pivot, Vec(), first + 2u, thread);
    sum += where_live(h3 - pivot, Vec(), first + 3u, thread);
    let count = max(columns_in(part), 1.0);
    let part_mean = pivot + sum_part(total(sum) / count, place, lane, subgroup_size);

    var deviations = Vec();
    var spreads = Vec();
    let d0 = where_live(h0 - part_mean, Vec(), first + 0u, thread);
    deviations += d0;
    spreads += d0 * (d0 * PER_COLUMN);
    let d1 = where_live(h1 - part_mean, Vec(), first + 1u, thread);
    deviations += d1;
    spreads += d1 * (d1 * PER_COLUMN);
    let d2 = where_live(h2 - part_mean, Vec(), first + 2u, thread);
    deviations += d2;
    spreads += d2 * (d2 * PER_COLUMN);
    let d3 = where_live(h3 - part_mean, Vec(), first + 3u, thread);
    deviations += d3;
    spreads += d3 * (d3 * PER_COLUMN);
    let sums = sum_deviations(vec2(total(deviations), total(spreads)), place, lane, subgroup_size);
    let part_low = sums.x / count;
    // Beyond float32's range as in lib/statistics.wgsl.
    let part_spread = select(sums.y, max(sums.y - part_low * (part_low * (count * PER_COLUMN)), 0.0), sums.y < 1e38);
    if (thread == 0u && row_exists) {
        let at = params.parts_start + (row * PARTS + part) * 3u;
        parts[at] = part_mean;
        parts[at + 1u] = part_low;
        parts[at + 2u] = part_spread;
    }
}

@compute @workgroup_size(256)
fn normalize_rows(
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
    let row_index = workgroup / PARTS;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
    row_shift = (params.x_start + row_index * COLS) % 4u;
    let part = workgroup % PARTS;
    let first = part * STEPS;

    let h0 = load_x(row, first + 0u, thread);
    let h1 = load_x(row, first + 1u, thread);
    let h2 = load_x(row, first + 2u, thread);
    let h3 = load_x(row, first + 3u, thread);
    let records = params.parts_start + row * 3u * PARTS;
    let mean = parts[records];
    var distances = 0.0;
    for (var other = thread; other < PARTS; other += THREADS) {
        let at = records + 3u * other;
        distances += ((parts[at] - mean) + parts[at + 1u]) * (columns_in(other) * PER_COLUMN);
    }
    let low = sum_means(distances, place, lane, subgroup_size);
    var spread_of_parts = 0.0;
    for (var other = thread; other < PARTS; other += THREADS) {
        let at = records + 3u * other;
        let distance = (parts[at] - mean) + parts[at + 1u] - low;
        spread_of_parts += parts[at + 2u] + distance * (distance * (columns_in(other) * PER_COLUMN));
    }
    let variance = sum_spreads(spread_of_parts, place, lane, subgroup_size);
    let rstd = inverseSqrt(variance + params.eps);
    let y0 = (h0 - mean - low) * rstd;
    let y1 = (h1 - mean - low) * rstd;
    let y2 = (h2 - mean - low) * rstd;
    let y3 = (h3 - mean - low) * rstd;
    store_y(row, row_exists, first + 0u, thread, y0);
    store_y(row, row_exists, first + 1u, thread, y1);
    store_y(row, row_exists, first + 2u, thread, y2);
    store_y(row, row_exists, first + 3u, thread, y3);
}
