// /// webnorm
// summary = "Several invocations per row, which stays in registers: one read, one reduction."
// differs = "vec4 loads, logits read once, long rows too; maximum and sum are joined in one reduction."
// rung = 2
// [features]
// subgroups = "subgroups"
// [tune]
// subgroups = [true, false]
// threads_per_row = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8]
// [default]
// subgroups = "has_subgroups"
// threads_per_row = [
//     ["software", [
//         ["classes <= 256", 4],
//         ["classes <= 1024", 16],
//         ["classes <= 4096", 64],
//         "min(256, max_invocations)",
//     ]],
//     ["itemsize == 2", [
//         ["classes <= 1024", 32],
//         ["classes <= 2048", 64],
//         ["classes <= 8192", 128],
//         ["classes <= 32768", "min(512, max_invocations)"],
//         "min(1024, max_invocations)",
//     ]],
//     ["classes <= 256", 32],
//     ["classes <= 512", 64],
//     ["classes <= 4096", 128],
//     ["classes <= 16384", "min(256, max_invocations)"],
//     ["classes <= 32768", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["software", [["classes <= 256", 4], 1]], ["threads_per_row <= 32", 4], 1]
// [derive]
// vector_width = "4 if classes % 4 == 0 else 1"
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "ceil_div(classes, threads_per_row * vector_width)"
// # Longer rows are read in a loop, with a running maximum: more than 64 columns do not stay in registers.
// is_held = "steps * vector_width <= 64"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, rows_per_workgroup)"
// iterations = "24 if is_held else 24 + steps"
// [accuracy]
// serial_terms = "steps"
// ///

// Each invocation computes its own maximum and sum, and one reduction combines both. Two reductions would
// need another barrier.
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/place.wgsl" import locate with context %}
{% include "lib/tensors.wgsl" %}

{% set wide = vector_width == 4 %}
{% set stride = threads_per_row * vector_width %}
{% set load = "load4" if wide else "load" %}
alias Vec = {{ "vec4<f32>" if wide else "f32" }};
const THREADS = {{ threads_per_row }}u;
// The lowest float32 replaces columns that do not exist, since compilers may assume finite numbers.
const LOWEST = -3.4028234e38;

fn greatest_of(v: Vec) -> f32 {
    return {{ "max(max(v.x, v.y), max(v.z, v.w))" if wide else "v" }};
}

fn total_of(v: Vec) -> f32 {
    return {{ "(v.x + v.y) + (v.z + v.w)" if wide else "v" }};
}

// Combines two parts of a row: the maximum, and the sum of exp(x - maximum). The part with the smaller
// maximum is rescaled.
fn join(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let scale = exp(-abs(a.x - b.x));
    return vec2(max(a.x, b.x), select(fma(a.y, scale, b.y), fma(b.y, scale, a.y), a.x >= b.x));
}

{{ row_reduction("joined", "vec2<f32>", "join") }}
@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let row = workgroup * {{ rows_per_workgroup }}u + place / THREADS;
    // Rows past the end repeat the last row, since every invocation takes part in the reduction.
    let existing = min(row, params.rows - 1u);
    let first = existing * classes;
    let own = {{ vector_width }}u * thread;
    // Loaded before the row, so that the last line does not wait for it.
    let class_logit = load_logits(first + u32(load_targets(existing)));
{% if is_held %}
{% for j in range(steps) %}
    let at{{ j }} = own + {{ j * stride }}u;
{% if stride * (j + 1) <= classes %}
    let x{{ j }} = {{ load }}_logits(first + at{{ j }});
{% else %}
    // The index is clamped, not guarded by a branch, so that the loads can overlap.
    let is_inside = at{{ j }} < classes;
    let last = {{ load }}_logits(first + min(at{{ j }}, classes - {{ vector_width }}u));
    let x{{ j }} = select(Vec(LOWEST), last, is_inside);
{% endif %}
{% endfor %}
    var most = x0;
{% for j in range(1, steps) %}
    most = max(most, x{{ j }});
{% endfor %}
    // If -inf masks all columns of an invocation, its maximum minus itself would be NaN.
    let largest = max(greatest_of(most), LOWEST);
{% for j in range(steps) %}
{% set e = "exp(x" ~ j ~ " - largest)" %}
    let e{{ j }} = {{ e if stride * (j + 1) <= classes else "select(Vec(), " ~ e ~ ", is_inside)" }};
{% endfor %}
    var sum = e0;
{% for j in range(1, steps) %}
    sum += e{{ j }};
{% endfor %}
    let statistics = joined(vec2(largest, total_of(sum)), place, lane, subgroup_size);
{% else %}
    var most = Vec(LOWEST);
    var sums = Vec();
    for (var at = own; at < classes; at += {{ stride }}u) {
        let x = {{ load }}_logits(first + at);
        let greater = max(most, x);
        sums = fma(sums, exp(most - greater), exp(x - greater));
        most = greater;
    }
    let largest = greatest_of(most);
    let statistics = joined(vec2(largest, total_of(sums * exp(most - largest))), place, lane, subgroup_size);
{% endif %}
    if (thread == 0u && row < params.rows) {
        store_loss(row, log(statistics.y) + (statistics.x - class_logit));
    }
}
