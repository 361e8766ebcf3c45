// /// webnorm
// summary = "Several invocations per row, y and dy stay in registers: one read, one reduction, one write."
// differs = "vec4 loads, each read once; the sum is joined by subgroups or workgroup memory."
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
//         ["cols <= 256", 4],
//         ["cols <= 1024", 16],
//         ["cols <= 4096", 64],
//         "min(256, max_invocations)",
//     ]],
//     ["itemsize == 2", [
//         ["cols <= 512", 32],
//         ["cols <= 1024", 64],
//         ["cols <= 2048", 128],
//         ["cols <= 8192", "min(256, max_invocations)"],
//         ["cols <= 16384", "min(512, max_invocations)"],
//         "min(1024, max_invocations)",
//     ]],
//     ["cols <= 256", 32],
//     ["cols <= 1024", 128],
//     ["cols <= 2048", "min(256, max_invocations)"],
//     ["cols <= 16384", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["software", [["cols <= 256", 4], 1]], ["threads_per_row <= 32", 4], 1]
// [derive]
// vector_width = "4 if cols % 4 == 0 else 1"
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "ceil_div(cols, threads_per_row * vector_width)"
// # Longer rows are read again, in loops: more than 32 columns of y and dy do not stay in registers.
// is_held = "steps * vector_width <= 32"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, rows_per_workgroup)"
// iterations = "24 if is_held else 24 + 2 * steps"
// [accuracy]
// serial_terms = "steps"
// ///
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/place.wgsl" import locate with context %}
{% include "lib/tensors.wgsl" %}

{% set wide = vector_width == 4 %}
{% set stride = threads_per_row * vector_width %}
{% set load = "load4" if wide else "load" %}
{% set store = "store4" if wide else "store" %}
alias Vec = {{ "vec4<f32>" if wide else "f32" }};
const THREADS = {{ threads_per_row }}u;

fn total_of(v: Vec) -> f32 {
    return {{ "(v.x + v.y) + (v.z + v.w)" if wide else "v" }};
}

{{ row_reduction("joined", "f32") }}
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
{% if is_held %}
{% for j in range(steps) %}
    let at{{ j }} = own + {{ j * stride }}u;
{% if stride * (j + 1) <= cols %}
    let y{{ j }} = {{ load }}_y(first + at{{ j }});
    let dy{{ j }} = {{ load }}_dy(first + at{{ j }});
{% else %}
    // The index is clamped, not guarded by a branch, so that the loads can overlap.
    let is_inside = at{{ j }} < cols;
    let y{{ j }} = select(Vec(), {{ load }}_y(first + min(at{{ j }}, cols - {{ vector_width }}u)), is_inside);
    let dy{{ j }} = {{ load }}_dy(first + min(at{{ j }}, cols - {{ vector_width }}u));
{% endif %}
{% endfor %}
    var products = y0 * dy0;
{% for j in range(1, steps) %}
    products = fma(y{{ j }}, dy{{ j }}, products);
{% endfor %}
    let sum = joined(total_of(products), place, lane, subgroup_size);
    if (row < params.rows) {
{% for j in range(steps) %}
{% if stride * (j + 1) <= cols %}
        {{ store }}_dx(first + at{{ j }}, y{{ j }} * (dy{{ j }} - sum));
{% else %}
        if (is_inside) {
            {{ store }}_dx(first + at{{ j }}, y{{ j }} * (dy{{ j }} - sum));
        }
{% endif %}
{% endfor %}
    }
{% else %}
    var products = Vec();
    for (var at = own; at < cols; at += {{ stride }}u) {
        products = fma({{ load }}_y(first + at), {{ load }}_dy(first + at), products);
    }
    let sum = joined(total_of(products), place, lane, subgroup_size);
    if (row < params.rows) {
        for (var at = own; at < cols; at += {{ stride }}u) {
            {{ store }}_dx(first + at, {{ load }}_y(first + at) * ({{ load }}_dy(first + at) - sum));
        }
    }
{% endif %}
}
