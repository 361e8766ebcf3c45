// /// webnorm
// summary = "Invocations share several rows: each loads eight weights of every row for the same eight of x."
// differs = "Whole words of weights, x loaded once for all rows, sums joined across invocations."
// rung = 2
// [features]
// subgroups = "subgroups"
// [tune]
// subgroups = [true, false]
// threads_per_row = [8, 16, 32, 64, 128, 256]
// rows_per_workgroup = [1, 2, 4, 8]
// rows = [1, 2, 4]
// words = [1, 4]
// [default]
// subgroups = "has_subgroups"
// threads_per_row = "8 if software else min(64, max_invocations)"
// rows_per_workgroup = "4 if software else 1"
// rows = "2"
// words = "1"
// [derive]
// vector_width = 4
// workgroup_size = "threads_per_row * rows_per_workgroup"
// parts = "k // (8 * words)"
// steps = "ceil_div(parts, threads_per_row)"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "threads_per_row * rows_per_workgroup exceeds the invocations of a workgroup on this adapter"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(n, rows_per_workgroup * rows)"
// iterations = "steps"
// [accuracy]
// serial_terms = "2 * words * steps + 3"
// ///

// A row of the library is a group of `rows` rows here. The invocations of a group share each row, and read x
// once for all rows. An invocation processes parts of `words` words, each within one group of 32 weights.
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/place.wgsl" import locate with context %}
{% include "lib/tensors.wgsl" %}

alias Sums = {{ "vec" ~ rows ~ "<f32>" if rows > 1 else "f32" }};
const THREADS = {{ threads_per_row }}u;

// The weights of four neighbouring nibbles; the first begins at bit `shift`.
fn unpacked(word: u32, shift: u32) -> vec4<f32> {
    let codes = (vec4(word) >> (vec4(0u, 4u, 8u, 12u) + shift)) & vec4(15u);
    return vec4<f32>(codes) - 8.0;
}

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
    var sum{{ r }} = vec4(0.0);
{% endfor %}
    for (var part = thread; part < {{ parts }}u; part += THREADS) {
{% for r in range(rows) %}
        let w{{ r }} = load{{ "4" if words == 4 }}_w((row{{ r }} * {{ parts }}u + part) * {{ words }}u);
        let scale{{ r }} = load_scale(row{{ r }} * {{ k // 32 }}u + part{{ " / 4u" if words == 1 }});
        var own{{ r }} = vec4(0.0);
{% endfor %}
{% for j in range(2 * words) %}
        let x{{ j }} = load4_x({{ 8 * words }}u * part + {{ 4 * j }}u);
{% for r in range(rows) %}
{% set word = "w" ~ r ~ ("[" ~ j // 2 ~ "]" if words == 4 else "") %}
        own{{ r }} = fma(unpacked({{ word }}, {{ j % 2 * 16 }}u), x{{ j }}, own{{ r }});
{% endfor %}
{% endfor %}
{% for r in range(rows) %}
        sum{{ r }} = fma(vec4(scale{{ r }}), own{{ r }}, sum{{ r }});
{% endfor %}
    }
{% macro total(r) -%}
sum{{ r }}.x + sum{{ r }}.y + (sum{{ r }}.z + sum{{ r }}.w)
{%- endmacro %}
    let own = Sums({% for r in range(rows) %}{{ total(r) }}{{ ", " if not loop.last }}{% endfor %});
    let sums = joined(own, place, lane, subgroup_size);
{% for r in range(rows) %}
    if (thread == {{ r }}u && first + {{ r }}u < params.n) {
        store_y(row{{ r }}, sums{{ "[" ~ r ~ "]" if rows > 1 }});
    }
{% endfor %}
}
