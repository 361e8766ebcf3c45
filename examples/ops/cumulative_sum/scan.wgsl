// /// webnorm
// summary = "Several invocations per row: a scan in registers, across lanes and the workgroup, by tiles."
// differs = "vec4 loads, x read once; sums are carried by subgroups and workgroup memory."
// rung = 2
// [features]
// subgroups = "subgroups"
// [tune]
// subgroups = [true, false]
// threads_per_row = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8]
// vectors = [1, 2, 4, 8]
// [default]
// subgroups = "has_subgroups"
// threads_per_row = [
//     ["software", [
//         ["cols <= 256", 4],
//         ["cols <= 1024", 16],
//         ["cols <= 4096", 64],
//         "min(256, max_invocations)",
//     ]],
//     ["itemsize == 2", [
//         ["cols <= 1024", 32],
//         ["cols <= 2048", 64],
//         ["cols <= 16384", 128],
//         "min(256, max_invocations)",
//     ]],
//     ["cols <= 256", 32],
//     ["cols <= 1024", 128],
//     ["cols <= 4096", "min(256, max_invocations)"],
//     "min(512, max_invocations)",
// ]
// rows_per_workgroup = [["software", [["cols <= 256", 4], 1]], ["threads_per_row <= 32", 4], 1]
// vectors = [
//     ["cols % 4 != 0", [["cols <= 2 * threads_per_row", 2], ["cols <= 4 * threads_per_row", 4], 8]],
//     ["cols <= 4 * threads_per_row", 1],
//     ["cols <= 8 * threads_per_row", 2],
//     4,
// ]
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "ceil_div(cols, threads_per_row * vector_width)"
// tiles = "ceil_div(steps, vectors)"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, rows_per_workgroup)"
// iterations = "tiles * (1 + threads_per_row // 4)"
// [accuracy]
// serial_terms = "vectors + tiles"
// ///
{% from "lib/place.wgsl" import locate with context %}
{% include "lib/tensors.wgsl" %}

{% set wide = vector_width == 4 %}
{% set stride = threads_per_row * vector_width %}
{% set load = "load4" if wide else "load" %}
{% set store = "store4" if wide else "store" %}
alias Vec = {{ "vec4<f32>" if wide else "f32" }};
const THREADS = {{ threads_per_row }}u;

{% set tile = stride * vectors %}
{% set smallest_subgroup = 4 if subgroups else 1 %}
{% set spans_segments = threads_per_row > smallest_subgroup %}
{% if spans_segments %}
// The sums of segments; without subgroups two sets, used in turn.
var<workgroup> partials: array<f32, {{ workgroup_size // 4 if subgroups else 2 * workgroup_size }}>;
{% endif %}

// The inclusive sums within a Vec.
fn scan_vec(v: Vec) -> Vec {
{% if wide %}
    let pairs = v + vec4(0.0, v.x, 0.0, v.z);
    return pairs + vec4(0.0, 0.0, pairs.y, pairs.y);
{% else %}
    return v;
{% endif %}
}
{% if subgroups %}

// The inclusive sum over the lanes of a segment.
fn scan_lanes(own: f32, lane_of_segment: u32, lanes: u32) -> f32 {
    var value = own;
{% for power in range(7) if 2 ** power < threads_per_row %}
    if ({{ 2 ** power }}u < lanes) {
        let below = subgroupShuffleUp(value, {{ 2 ** power }}u);
        value += select(0.0, below, lane_of_segment >= {{ 2 ** power }}u);
    }
{% endfor %}
    return value;
}
{% endif %}

// Return the sum of the segments before the invocation's segment, and the sum of all.
fn join_segments(own: f32, thread: u32, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
{% if subgroups and spans_segments %}
    var sums = vec2(0.0, own);
    if (subgroup_size < THREADS) {
        if (lane == 0u) {
            partials[place / subgroup_size] = own;
        }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let segment = thread / subgroup_size;
        sums = vec2<f32>();
        for (var i = 0u; i < count; i++) {
            let partial = partials[place / THREADS * count + i];
            sums += vec2(select(0.0, partial, i < segment), partial);
        }
    }
    return sums;
{% elif spans_segments %}
    // A segment is one invocation. Each round doubles the number of invocations that a sum covers.
    var value = own;
{% set rounds = namespace(count=0) %}
{% for power in range(10) if 2 ** power < threads_per_row %}
{% set set = workgroup_size * (power % 2) %}
    partials[{{ set }}u + place] = value;
    workgroupBarrier();
    if (thread >= {{ 2 ** power }}u) {
        value += partials[{{ set - 2 ** power }} + i32(place)];
    }
{% set rounds.count = power + 1 %}
{% endfor %}
{% set set = workgroup_size * (rounds.count % 2) %}
    partials[{{ set }}u + place] = value;
    workgroupBarrier();
    let last = {{ set }}u + place - thread + THREADS - 1u;
    return vec2(select(0.0, partials[{{ set }}u + max(place, 1u) - 1u], thread > 0u), partials[last]);
{% else %}
    return vec2(0.0, own);
{% endif %}
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let row = workgroup * {{ rows_per_workgroup }}u + place / THREADS;
    // Rows past the end repeat the last row, since every invocation takes part in the scan.
    let existing = min(row, params.rows - 1u);
    let first = existing * cols;
{% if subgroups %}
    // A subgroup holds a segment of the row, and neighbouring lanes hold neighbouring Vecs.
    let lanes = min(subgroup_size, THREADS);
    let lane_of_segment = thread % lanes;
    let own = {{ vector_width }}u * (thread / lanes * lanes * {{ vectors }}u + lane_of_segment);
    let step = {{ vector_width }}u * lanes;
{% else %}
    // An invocation holds a segment of the row, in neighbouring Vecs.
    let own = {{ vector_width * vectors }}u * thread;
    let step = {{ vector_width }}u;
{% endif %}
{% if tiles > 1 %}
    var carried = 0.0;
    for (var tile = 0u; tile < {{ tiles }}u; tile++) {
    let start = own + tile * {{ tile }}u;
{% else %}
    let start = own;
{% endif %}
{% for j in range(vectors) %}
    let at{{ j }} = start + {{ j }}u * step;
{% if tile * tiles == cols %}
    let v{{ j }} = scan_vec({{ load }}_x(first + at{{ j }}));
{% else %}
    // The index is clamped, not guarded by a branch, so that the loads can overlap.
    let x{{ j }} = {{ load }}_x(first + min(at{{ j }}, cols - {{ vector_width }}u));
    let v{{ j }} = scan_vec(select(Vec(), x{{ j }}, at{{ j }} < cols));
{% endif %}
{% endfor %}
    var sum = 0.0;
{% for j in range(vectors) %}
{% set total = "v" ~ j ~ ".w" if wide else "v" ~ j %}
{% if subgroups %}
    let inclusive{{ j }} = scan_lanes({{ total }}, lane_of_segment, lanes);
    let below{{ j }} = subgroupShuffleUp(inclusive{{ j }}, 1u);
    let before{{ j }} = sum + select(0.0, below{{ j }}, lane_of_segment > 0u);
    sum += subgroupShuffle(inclusive{{ j }}, lane | (lanes - 1u));
{% else %}
    let before{{ j }} = sum;
    sum += {{ total }};
{% endif %}
{% endfor %}
    let sums = join_segments(sum, thread, place, lane, subgroup_size);
    let base = sums.x{{ " + carried" if tiles > 1 }};
{% for j in range(vectors) %}
    if (row < params.rows{{ " && at" ~ j ~ " < cols" if tile * tiles != cols }}) {
        {{ store }}_y(first + at{{ j }}, v{{ j }} + (base + before{{ j }}));
    }
{% endfor %}
{% if tiles > 1 %}
    carried += sums.y;
{% if spans_segments %}
    // The next tile overwrites values that other invocations may still read.
    workgroupBarrier();
{% endif %}
    }
{% endif %}
}
