// /// webnorm
// summary = "Several invocations per row, each with a maximum and its index for every lane of its vec4."
// differs = "vec4 loads, several on their way together; one reduction joins maximum and index."
// rung = 2
// [features]
// subgroups = "subgroups"
// [tune]
// subgroups = [true, false]
// threads_per_row = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8]
// accesses = [1, 2, 4, 8]
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
//         ["cols <= 16384", 64],
//         ["cols <= 32768", 128],
//         "min(512, max_invocations)",
//     ]],
//     ["cols <= 512", 32],
//     ["cols <= 1024", 64],
//     ["cols <= 2048", 128],
//     ["cols <= 4096", "min(256, max_invocations)"],
//     ["cols <= 8192", "min(512, max_invocations)"],
//     ["cols <= 16384", "min(1024, max_invocations)"],
//     ["cols <= 32768", "min(256, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["software", [["cols <= 256", 4], 1]], ["threads_per_row <= 32", 4], 1]
// accesses = "2 if software else 4"
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "ceil_div(cols, threads_per_row * vector_width)"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, rows_per_workgroup)"
// iterations = "25 + ceil_div(steps, min(accesses, steps))"
// ///
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/place.wgsl" import locate with context %}
{% include "lib/tensors.wgsl" %}

{% set wide = vector_width == 4 %}
{% set stride = threads_per_row * vector_width %}
{% set load = "load4" if wide else "load" %}
alias Vec = {{ "vec4<f32>" if wide else "f32" }};
const THREADS = {{ threads_per_row }}u;
{{ "alias Indices = vec4<u32>;" if wide else "alias Indices = u32;" }}

// Bits of a float and its index. The larger float wins, and the smaller index if both are equal. The floats
// are compared, not their bits, since -0 and 0 are equal.
fn prefer(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let x = bitcast<f32>(a.x);
    let y = bitcast<f32>(b.x);
    return select(a, b, y > x || (y == x && b.y < a.y));
}

{{ row_reduction("preferred", "vec2<u32>", "prefer") }}
@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let row = workgroup * {{ rows_per_workgroup }}u + place / THREADS;
    // Rows past the end repeat the last row, since every invocation takes part in the reduction.
    let existing = min(row, params.rows - 1u);
    let first = existing * cols;
    let own = {{ vector_width }}u * thread;
    var most = Vec({{ load }}_x(first + min(own, cols - {{ vector_width }}u)));
    var starts = Indices(min(own, cols - {{ vector_width }}u));
{% if steps > 1 %}
{% set per_round = [accesses, steps - 1] | min %}
{% set step = stride * per_round %}
{% set rounds = (steps - 2) // per_round + 1 %}
    for (var start = own + {{ stride }}u; start < own + {{ stride + rounds * step }}u; start += {{ step }}u) {
{% for j in range(per_round) %}
{% if stride * (1 + rounds * per_round) == cols %}
        let at{{ j }} = start + {{ j * stride }}u;
{% else %}
        // Past the end this repeats the last Vec, which changes nothing.
        let at{{ j }} = min(start + {{ j * stride }}u, cols - {{ vector_width }}u);
{% endif %}
        let x{{ j }} = {{ load }}_x(first + at{{ j }});
{% endfor %}
{% for j in range(per_round) %}
        // Strictly larger, so that the first of equal elements stays.
        starts = select(starts, Indices(at{{ j }}), x{{ j }} > most);
        most = max(most, x{{ j }});
{% endfor %}
    }
{% endif %}
{% if wide %}
    let bits = bitcast<vec4<u32>>(most);
    let indices = starts + vec4(0u, 1u, 2u, 3u);
    let low = prefer(vec2(bits.x, indices.x), vec2(bits.y, indices.y));
    let high = prefer(vec2(bits.z, indices.z), vec2(bits.w, indices.w));
    let found = preferred(prefer(low, high), place, lane, subgroup_size);
{% else %}
    let found = preferred(vec2(bitcast<u32>(most), starts), place, lane, subgroup_size);
{% endif %}
    if (thread == 0u && row < params.rows) {
        store_indices(row, i32(found.y));
    }
}
