// The same arithmetic as welford. Lanes of a subgroup read each other's registers, without memory or barriers. A row
// shorter than a subgroup shares it with other rows; a longer row uses workgroup memory once.

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
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

alias Vec = vec4<f32>;
alias Live = bool;

const THREADS = 128u;  // invocations per row
const STEPS = 2u;  // Vecs per invocation
const ACCESSES = COLS / 4u;  // Vecs per row

// The number of the invocation's Vec at step j.
fn access(j: u32, thread: u32) -> u32 {
    return j * THREADS + thread;
}

// The number of the invocation's Vec at step j, at most the number of the row's last Vec.
fn inside(j: u32, thread: u32) -> u32 {
    return min(access(j, thread), ACCESSES - 1u);
}

// Whether the invocation's columns exist at step j.
fn live(j: u32, thread: u32) -> Live {
    return access(j, thread) < ACCESSES;
}

// `value` in columns that exist, `otherwise` in the others.
fn where_live(value: Vec, otherwise: Vec, j: u32, thread: u32) -> Vec {
    return select(otherwise, value, live(j, thread));
}

fn load_x(row: u32, j: u32, thread: u32) -> Vec {
    let raw = x[(params.x_start + row * COLS) / 4u + inside(j, thread)];
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
    let at = (params.y_start + row * COLS) / 4u + access(j, thread);
    if (row_exists && live(j, thread)) {
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

// Joins runs of `lanes` lanes, in pairs at growing distances. Both lanes of a pair join in the same order, so that all
// lanes get the same bits.
fn across_lanes(own: Moments, lanes: u32, lane: u32) -> Moments {
    var value = own;
    for (var distance = 1u; distance < lanes; distance *= 2u) {
        let other = subgroupShuffleXor(value, distance);
        let is_upper = (lane & distance) != 0u;
        value = joined(select(value, other, is_upper), select(other, value, is_upper));
    }
    return value;
}

var<workgroup> partials: array<Moments, 32>;  // no subgroup has fewer than 4 lanes

// The moments of all invocations of the row: joined over its lanes, and then over its `count` subgroups if there are
// several. Every subgroup reads the moments of all subgroups. A lane reads one of them, or several if there are more
// subgroups than lanes. With fewer, lanes read some twice and join only `count` of them.
fn row_moments(own: Moments, place: u32, lane: u32, subgroup_size: u32) -> Moments {
    var value = across_lanes(own, min(subgroup_size, THREADS), lane);
    if (subgroup_size < THREADS) {
        if (lane == 0u) {
            partials[place / subgroup_size] = value;
        }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;  // a workgroup may have several rows
        value = partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = joined(value, partials[first + i]);
        }
        value = across_lanes(value, min(count, subgroup_size), lane);
        workgroupBarrier();  // before the next ones are written
    }
    return value;
}

@compute @workgroup_size(128)
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

    var own_mean = Vec();
    var own_spread = Vec();
    var count = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let value = load_input(row, j, thread);
        let delta = value - own_mean;
        let next = own_mean + delta / (count + Vec(1.0));
        own_spread += where_live(delta * ((value - next) * PER_COLUMN), Vec(), j, thread);
        own_mean = where_live(next, own_mean, j, thread);
        count += where_live(Vec(1.0), Vec(), j, thread);
    }
    // Each component of the Vec has its own run of values.
    let own = joined(
        joined(Moments(own_mean.x, own_spread.x, count.x), Moments(own_mean.y, own_spread.y, count.y)),
        joined(Moments(own_mean.z, own_spread.z, count.z), Moments(own_mean.w, own_spread.w, count.w)),
    );
    let moments = row_moments(own, place, lane, subgroup_size);
    let mean = moments.x;
    let rstd = inverseSqrt(moments.y + params.eps);

    for (var j = 0u; j < STEPS; j++) {
        let h = load_x(row, j, thread);
        let y_value = affine((h - mean) * rstd, j, thread);
        store_y(row, row_exists, j, thread, y_value);
    }
}
