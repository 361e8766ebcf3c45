{#- The gradient of rows that stay in registers: `main` of the kernels `registers`. -#}
{% from "lib/place.wgsl" import locate with context %}
{% from "lib/locate.wgsl" import locate_row with context %}
{% from "lib/saved.wgsl" import saved_stats as saved_stats_of_row, unpack_saved with context %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, swept_moments with context %}
{% from "lib/gradient_row.wgsl" import streams, kept, load_streams, weighted, normalized_x, normalized_step, normalized_steps, gradient_reduction, begin_sums, add_steps, share_sums, share_early_sums, dx_of with context %}
{% from "lib/park.wgsl" import fetched, parking, park, first_parked, from_park, weight_waits, weight_parking, park_weight with context %}
{% from "lib/sweep.wgsl" import sweep with context %}
{% from "lib/direct.wgsl" import unpacked_step with context %}
{% from "lib/column_sums.wgsl" import summed with context %}
{% from "lib/dtype.wgsl" import shifted with context %}
{% from "lib/write.wgsl" import store_access with context %}
{% set stream = " + place / THREADS" if rows_per_workgroup > 1 else "" %}
{#- The tensors that are prefetched in their storage format. For a row that is read again, only those for its sums. -#}
{% set ahead = ["x", "dy"] if reread else streams %}
{% set pivot_ahead = has_mean and prefetch and not reread and not saved_stats %}
{% set row_pivot = "pivot_ahead" if pivot_ahead else "pivot_of(row)" %}
{% macro fetch_ahead(row, before="        ") %}
{% for j in range(0, steps, fetched) %}
{% for name in ahead %}
{{ before }}next_{{ name ~ j }} = fetch_{{ name }}({{ row }}, {{ j }}u, thread);
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro take_fetched() %}
{% for j in range(steps) %}
{% for name in ahead %}
        let {{ name ~ j }} = {{ unpacked_step(name, "next_" ~ name ~ (j - j % fetched), j ~ "u") }};
{% endfor %}
{% endfor %}
{% endmacro %}
{% set dx = tensors | selectattr("name", "eq", "dx") | first %}
{#- How a row is kept until its sums are known: decoded; in words in its storage format; x in workgroup memory, with the
    rest read again; or all of it is read again. -#}
{% set decoded_again = words or parked > 0 %}
{% set whole_row = not reread and not decoded_again %}
{% macro load_words() %}
{% for j in range(0, steps, fetched) %}
{% for name in streams %}
        let {{ name }}_words{{ j }} = {{ "next_" ~ name ~ j if prefetch else "fetch_" ~ name ~ "(row, " ~ j ~ "u, thread)" }};
{% endfor %}
{% endfor %}
{% endmacro %}
{#- The words of step j. `hidden` is a zero that the compiler does not know. It makes the compiler decode the words again
    instead of keeping twice as many registers. -#}
{% macro from_words(name, j, hidden=false) -%}
{{ unpacked_step(name, name ~ "_words" ~ (j - j % fetched) ~ (" ^ vec" ~ (4 if fetched == 2 else 2) ~ "(hidden)" if hidden else ""), j ~ "u") }}
{%- endmacro %}
{% macro take_words(names, j, hidden) %}
{% for name in names %}
        let {{ name ~ j }} = {{ from_words(name, j, hidden) }};
{% endfor %}
{% endmacro %}
{% macro load_and_park_x() %}
{% for j in range(steps) %}
{% if j % fetched == 0 %}
        let raw{{ j }} = fetch_x(row, {{ j }}u, thread);
{% endif %}
        let x{{ j }} = {{ unpacked_step("x", "raw" ~ (j - j % fetched), j ~ "u") }};
{% for name in streams if name != "x" %}
        let {{ name ~ j }} = load_{{ name }}(row, {{ j }}u, thread);
{% endfor %}
{% endfor %}
{{ park() }}
{% endmacro %}
{% macro take_parked_x(j) %}
        let x{{ j }} = {{ from_park(j) if j >= first_parked else "load_x(row + hidden, " ~ j ~ "u, thread)" }};
{% endmacro %}
{% macro held_step(name, j) -%}
{{ from_words(name, j) if words else name ~ j }}
{%- endmacro %}
{% macro held_x(j) -%}
{{ held_step("x", j) }}
{%- endmacro %}
{#- With `early_sums`, text that adds step j to the sums before the row's statistics are known. Only for float16: in wider
    types g * x may overflow float32 when g * x̂ does not, and float32 LayerNorm and RMSNorm would not be faster. -#}
{% macro early_step(j, d) %}
{% set g = "g" ~ j if j < kept else "g" %}
    let {{ g }} = {{ weighted(held_step("dy", j), j, not parked) }};
    along += {{ g }} * {{ d }};
    across += {{ g }};
{% endmacro %}
{{ saved_stats_of_row() if saved_stats else moment_reductions(early_sums) }}

{{ gradient_reduction() if not early_sums }}
{{ weight_parking() }}
{{ parking() }}
{% if rows_per_workgroup > 1 and summed %}
// The sums of all rows of a workgroup.
var<workgroup> merged: array<vec4<f32>, {{ summed|length * ((cols + 3) // 4) }}>;
{% endif %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
{% if capped %}
    // One record per workgroup, or several in turn if there are fewer workgroups.
    for (var record = workgroup; record < params.partials_count; record += workgroups.x * workgroups.y) {
{% else %}
    let record = workgroup;
{% endif %}
{% if shifted %}
    row_shift = (params.x_start + record * COLS) % 4u;
{% endif %}
{% if weight_waits %}
{{ park_weight() }}
{% elif has_weight and not reread and not parked %}
{% for j in range(steps) %}
    let weight{{ j }} = load_weight({{ j }}u, thread);
{% endfor %}
{% endif %}
{% for name in summed %}
{% for j in range(steps) %}
    var {{ name }}{{ j }} = Vec();
{% endfor %}
{% endfor %}

{% if prefetch %}
    let first = min(record * {{ rows_per_workgroup }}u{{ stream }}, params.rows - 1u);
{{ fetch_ahead("first", "    var ") }}
{% if saved_stats %}
    var next_saved = saved_stats(first);
{% elif pivot_ahead %}
    var next_pivot = pivot_of(first);
{% endif %}
{% endif %}
    // A dispatch of two dimensions may have more workgroups than there are records.
    let rows = select(0u, params.rows, record < params.partials_count);
    for (var group = record; group * {{ rows_per_workgroup }}u < rows; group += params.partials_count) {
{{ locate_row("group") }}
{% if prefetch %}
        // The loads of the next row overlap the work on this one.
        let next = min((group + params.partials_count) * {{ rows_per_workgroup }}u{{ stream }}, params.rows - 1u);
{% if whole_row %}
{{ take_fetched() }}
{% elif words %}
{{ load_words() }}
{% endif %}
{% if saved_stats %}
        let saved = next_saved;
        next_saved = saved_stats(next);
{% elif pivot_ahead %}
        let pivot_ahead = next_pivot;
        next_pivot = pivot_of(next);
{% endif %}
{{ fetch_ahead("next") if not reread }}
{% elif whole_row %}
{{ load_streams("row") }}
{% elif words %}
{{ load_words() }}
{% elif parked %}
{{ load_and_park_x() }}
{% endif %}
{% if early_sums %}
        var along = Vec();
        var across = Vec();
{{ held_moments(held_x, held_x, kept, row_pivot, early_step) }}
{{ held_scale(kept) }}
{{ share_early_sums() }}
{% else %}
{% if saved_stats %}
{% if not prefetch %}
    let saved = saved_stats(row);
{% endif %}
{{ unpack_saved("saved") }}
{% else %}
{{ swept_moments() if reread else held_moments(held_x, held_x, kept, row_pivot) }}
{% endif %}

{{ begin_sums() }}
{% if reread and prefetch %}
        {
{{ take_fetched() }}
{{ normalized_steps(false) }}
{{ add_steps() }}
        }
{% elif reread %}
        {% call sweep() %}
            let g = load_dy(row, j, thread){{ " * load_weight(j, thread)" if has_weight }};
            along += g * ({{ "(load_x(row, j, thread) - mean) * rstd - low_rstd" if has_mean else "load_x(row, j, thread) * rstd" }});
{% if has_mean %}
            across += g;
{% endif %}
        {% endcall %}
{% elif words %}
        {
{{ "        let hidden = select(0u, 1u, rstd < 0.0);" if not saved_stats }}
{% for j in range(steps) %}
{{ take_words(["x", "dy"], j, not saved_stats) }}
{{ normalized_step(j, true) }}
{% endfor %}
{{ add_steps() }}
        }
{% elif parked %}
        {
{{ normalized_steps(false) }}
{{ add_steps() }}
        }
{% else %}
{{ normalized_steps(true) }}
{{ add_steps() }}
{% endif %}
{{ share_sums() }}
{% endif %}
{% if reread %}
        // The same row, hidden from the compiler, which would otherwise keep the loaded values and run out of registers.
        let again = row + select(0u, 1u, rstd < 0.0);
{{ load_streams("again") }}
{{ fetch_ahead("next") if prefetch }}
{{ normalized_steps(false) }}
{% elif decoded_again %}
        // 0, hidden from the compiler, which would otherwise keep the decoded values and run out of registers.
        let hidden = select(0u, 1u, rstd < -abs(slope));
        {
{% endif %}
{% for j in range(steps) %}
{% if decoded_again %}
{{ take_words(streams, j, true) if words else take_parked_x(j) }}
{{ normalized_step(j, words, "thread + hidden") }}
{% elif early_sums %}
{{ normalized_x(j) }}
{% endif %}
        let dx{{ j }} = {{ dx_of(j) }};
{% for name, term in [("dweight", "dy" ~ j ~ " * xhat" ~ j), ("dbias", "dy" ~ j), ("dresidual_bias", "dx" ~ j)] if name in summed %}
        {{ name }}{{ j }} += {{ term if rows_per_workgroup == 1 else "select(Vec(), " ~ term ~ ", row_exists)" }};
{% endfor %}
{{ store_access(dx, j) }}
{% endfor %}
{{ "        }" if decoded_again }}
        next_turn();
    }
{% if tracing %}
    traced_row = traced_no_row;
{% endif %}
{% if summed %}

{% if rows_per_workgroup == 1 %}
    if (record < params.partials_count) {
{% for name in summed %}
{% for j in range(steps) %}
        store_partial(record, {{ summed.index(name) }}u, {{ j }}u, thread, {{ name }}{{ j }});
{% endfor %}
{% endfor %}
    }
{% else %}
{% for stream in range(rows_per_workgroup) %}
    if (place / THREADS == {{ stream }}u) {
{% for j in range(steps) %}
        if (live({{ j }}u, thread)) {
{% for name in summed %}
            merged[{{ summed.index(name) }}u * CHUNKS + access({{ j }}u, thread)] {{ "+=" if stream else "=" }} {{ name }}{{ j }};
{% endfor %}
        }
{% endfor %}
    }
    workgroupBarrier();
{% endfor %}
    if (record < params.partials_count) {
        for (var at = place; at < {{ summed|length }}u * CHUNKS; at += {{ workgroup_size }}u) {
            put_partial(record * {{ summed|length }}u * CHUNKS + at, merged[at]);
        }
    }
{% endif %}
{% endif %}
{% if capped %}
    workgroupBarrier();  // before the next record's sums
    }
{% endif %}
}
