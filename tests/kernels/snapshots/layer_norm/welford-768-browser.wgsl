// Mean and squared deviations are updated value by value (Welford, Technometrics 1962), and then joined pairwise across
// invocations (Chan, Golub and LeVeque, 1979). The mean is rounded to float32 each time, which limits the accuracy:
// once per step, and up to twelve times in the joins of a Vec's runs and of 1024 invocations.

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

const THREADS = 256u;  // invocations per row
const STEPS = 3u;  // Vecs per invocation

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// `value` in columns that exist, `otherwise` in the others.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return value;
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    return x[params.x_start + row * COLS + access(j, thread)];
}

fn load_weight(j: u32, thread: u32) -> Vec {
    return weight[access(j, thread)];
}

fn load_bias(j: u32, thread: u32) -> Vec {
    return bias[access(j, thread)];
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

// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized * load_weight(j, thread) + load_bias(j, thread);
}

// Mean, sum of squared deviations / COLS, number of values.
alias Moments = vec3<f32>;

// The joint mean is the weighted mean of the two. The joint sum of squared deviations is the sum of both plus
// delta² · count_a · count_b / count, divided by COLS like the others.
fn joined(a: Moments, b: Moments) -> Moments {
    let count = a.z + b.z;
    let share = b.z / max(count, 1.0);  // 0 of 0 where neither has a column
    let delta = b.x - a.x;
    return Moments(a.x + delta * share, a.y + b.y + delta * (delta * PER_COLUMN * (a.z * share)), count);
}

var<workgroup> partials: array<Moments, 256>;

// The moments of all invocations of the row, by a tree: each level halves the number of moments.
fn row_moments(own: Moments, thread: u32) -> Moments {
    partials[thread] = own;
    for (var left = THREADS / 2u; left > 0u; left /= 2u) {
        workgroupBarrier();
        if (thread < left) {
            partials[thread] = joined(partials[thread], partials[thread + left]);
        }
    }
    workgroupBarrier();
    let moments = partials[0];
    workgroupBarrier();  // before the next ones are written
    return moments;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = place;
    let row_index = workgroup;
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);

    var own_mean = Vec();
    var own_spread = Vec();
    var count = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let value = load_input(row, j, thread);
        let delta = value - own_mean;
        let next = own_mean + delta / (count + Vec(1.0));
        // The sum of squares grows by the distance from the old mean times the distance from the new mean.
        own_spread += where_live(delta * ((value - next) * PER_COLUMN), Vec(), j, thread);
        own_mean = where_live(next, own_mean, j, thread);
        count += where_live(Vec(1.0), Vec(), j, thread);
    }
    let own = Moments(own_mean, own_spread, count);
    let moments = row_moments(own, thread);
    let mean = moments.x;
    let rstd = inverseSqrt(moments.y + params.eps);

    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        let y_value = affine((h - mean) * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }
}
