// Mean and squared deviations are updated value by value (Welford), and the invocations' results are
// joined pairwise (Chan). The mean is rounded to float32, and that is what limits the result.

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
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

const COLS = 199u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = f32;
alias Live = bool;

const THREADS = 256u;  // invocations per row
const STEPS = 1u;  // Vecs per invocation
const ACCESSES = COLS;  // Vecs per row

// Which of the row's Vecs the invocation has at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The same; past the row's last Vec it is that one.
fn inside(j: u32, thread: u32) -> u32 {
    return min(access(j, thread), ACCESSES - 1u);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return access(j, thread) < ACCESSES;
}

// `value` in the columns that exist, `otherwise` in those that do not.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return select(otherwise, value, live(j, thread));
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let raw = x[params.x_start + row * COLS + inside(j, thread)];
    return where_live(raw, Vec(), j, thread);
}

fn store_y(row: u32, row_exists: bool, j: u32, thread: u32, value: Vec) {
    let at = params.y_start + row * COLS + access(j, thread);
    if (row_exists && live(j, thread)) {
        y[at] = value;
    }
}

fn load_input(row: u32, j: u32, thread: u32) -> Vec {
    return load_x(row, j, thread);
}

// The sum of a Vec's columns.
fn total(value: Vec) -> f32 {
    return value;
}

// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized;
}

// Mean, sum of squared deviations / COLS, number of values.
alias Moments = vec3<f32>;

fn joined(a: Moments, b: Moments) -> Moments {
    let count = a.z + b.z;
    let share = b.z / max(count, 1.0);
    let delta = b.x - a.x;
    return Moments(a.x + delta * share, a.y + b.y + delta * (delta * PER_COLUMN * (a.z * share)), count);
}

var<workgroup> joined_row_partials: array<Moments, 256>;

fn joined_row(own: Moments, place: u32, lane: u32, subgroup_size: u32) -> Moments {
    var value = own;
    let first = place - place % THREADS;
    joined_row_partials[place] = value;
    workgroupBarrier();
    // 256 partials become 32: an invocation writes only where it alone reads.
    if (place - first < 32u) {
        value = joined(value, joined_row_partials[place + 32u]);
        value = joined(value, joined_row_partials[place + 64u]);
        value = joined(value, joined_row_partials[place + 96u]);
        value = joined(value, joined_row_partials[place + 128u]);
        value = joined(value, joined_row_partials[place + 160u]);
        value = joined(value, joined_row_partials[place + 192u]);
        value = joined(value, joined_row_partials[place + 224u]);
        joined_row_partials[place] = value;
    }
    workgroupBarrier();
    // 32 partials become 4: an invocation writes only where it alone reads.
    if (place - first < 4u) {
        value = joined(value, joined_row_partials[place + 4u]);
        value = joined(value, joined_row_partials[place + 8u]);
        value = joined(value, joined_row_partials[place + 12u]);
        value = joined(value, joined_row_partials[place + 16u]);
        value = joined(value, joined_row_partials[place + 20u]);
        value = joined(value, joined_row_partials[place + 24u]);
        value = joined(value, joined_row_partials[place + 28u]);
        joined_row_partials[place] = value;
    }
    workgroupBarrier();
    value = joined_row_partials[first];
    value = joined(value, joined_row_partials[first + 1u]);
    value = joined(value, joined_row_partials[first + 2u]);
    value = joined(value, joined_row_partials[first + 3u]);
    return value;
}

// The invocation's own columns, a run for each component of a Vec, then joined.
fn own_moments(row: u32, thread: u32) -> Moments {
    var mean = Vec();
    var spread = Vec();
    var count = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let value = load_input(row, j, thread);
        let delta = value - mean;
        let next = mean + delta / (count + Vec(1.0));
        spread += where_live(delta * ((value - next) * PER_COLUMN), Vec(), j, thread);
        mean = where_live(next, mean, j, thread);
        count += where_live(Vec(1.0), Vec(), j, thread);
    }
    return Moments(mean, spread, count);
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

    let moments = joined_row(own_moments(row, thread), place, lane, subgroup_size);
    let mean = moments.x;
    const low = 0.0;
    let rstd = inverseSqrt(moments.y + params.eps);

    for (var j = 0u; j < STEPS; j++) {
        let h = load_input(row, j, thread);
        let y_value = affine((h - mean - low) * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }

}
