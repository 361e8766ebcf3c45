// /// webnorm
// summary = "Invocations share several rows: each loads four weights of every row for the same four of x."
// differs = "A word of weights an access, x loaded once for all rows, sums joined across invocations."
// rung = 2
// [features]
// subgroups = "subgroups"
// [tune]
// subgroups = [true, false]
// threads_per_row = [8, 16, 32, 64, 128, 256]
// rows_per_workgroup = [1, 2, 4, 8]
// rows = [1, 2, 4]
// words = [1, 2, 4]
// [default]
// subgroups = "has_subgroups"
// threads_per_row = "8 if software else min(128, max_invocations)"
// rows_per_workgroup = "4 if software else 1"
// rows = "2"
// words = "2 if software else 4"
// [derive]
// vector_width = "4 if k % 4 == 0 else 1"
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "ceil_div(k, threads_per_row * vector_width * words)"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(n, rows_per_workgroup * rows)"
// iterations = "steps"
// [accuracy]
// serial_terms = "steps * words + 3"
// ///

// A row of the library is a group of `rows` rows here. The invocations of a group share each row, and read x
// once for all rows.
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/place.wgsl" import locate with context %}
{% include "lib/tensors.wgsl" %}

{% set wide = vector_width == 4 %}
alias Vec = {{ "vec4<f32>" if wide else "f32" }};
alias Sums = {{ "vec" ~ rows ~ "<f32>" if rows > 1 else "f32" }};
const THREADS = {{ threads_per_row }}u;

{{ row_reduction("joined", "Sums") }}
@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let first = (workgroup * {{ rows_per_workgroup }}u + place / THREADS) * {{ rows }}u;
{% for r in range(rows) %}
    // Rows past the end repeat the last row, since every invocation takes part in the reduction.
    let row{{ r }} = min(first + {{ r }}u, params.n - 1u);
    var sum{{ r }} = Vec();
{% endfor %}
{% set load = "load4" if wide else "load" %}
{% set stride = threads_per_row * vector_width %}
{% set whole = k % (stride * words) == 0 %}
    for (var start = {{ vector_width }}u * thread; start < k; start += {{ stride * words }}u) {
{% for j in range(words) %}
{% if whole %}
        let i{{ j }} = start + {{ j * stride }}u;
        let x{{ j }} = {{ load }}_x(i{{ j }});
{% else %}
        let is_inside{{ j }} = start + {{ j * stride }}u < k;
        let i{{ j }} = select(0u, start + {{ j * stride }}u, is_inside{{ j }});
        let x{{ j }} = select(Vec(), {{ load }}_x(i{{ j }}), is_inside{{ j }});
{% endif %}
{% for r in range(rows) %}
        let w{{ r }}_{{ j }} = {{ load }}_w(row{{ r }} * k + i{{ j }});
{% endfor %}
{% endfor %}
{% for j in range(words) %}
{% for r in range(rows) %}
        sum{{ r }} = fma(Vec(w{{ r }}_{{ j }}), x{{ j }}, sum{{ r }});
{% endfor %}
{% endfor %}
    }
{% macro total(r) -%}
{{ "sum" ~ r ~ ".x + sum" ~ r ~ ".y + (sum" ~ r ~ ".z + sum" ~ r ~ ".w)" if wide else "sum" ~ r }}
{%- endmacro %}
    let own = Sums({% for r in range(rows) %}{{ total(r) }}{{ ", " if not loop.last }}{% endfor %});
    let sums = joined(own, place, lane, subgroup_size);
{% for r in range(rows) %}
    if (thread == {{ r }}u && first + {{ r }}u < params.n) {
        store_y(row{{ r }}, load_scale(row{{ r }}) * sums{{ "[" ~ r ~ "]" if rows > 1 }});
    }
{% endfor %}
}
