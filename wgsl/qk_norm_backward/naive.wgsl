// /// webnorm
// summary = "One invocation per head of a token for dx, then one per column for the sums over tokens."
// differs = "Follows the formulas; the sums read q, k and their gradients again, and a last pass stores them."
// layout = "row_per_invocation"
// [derive]
// vector_width = 1
// sets_q = "q_heads if weight_per_head else 1"
// sets_k = "k_heads if weight_per_head else 1"
// columns = "(sets_q + key * sets_k) * dim"
// [[scratch]]
// name = "statistics"
// words = "3 * tokens * heads"
// [[scratch]]
// name = "column_sums"
// records = "1"
// words = "sums * columns"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * tokens * heads, workgroup_size)"
// iterations = "4 * steps"
// bindings = ["q", "k", "dyq", "dyk", "weight_q", "weight_k", "dq", "dk", "statistics"]
// [[pass]]
// entry_point = "sums_q"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(sets_q * dim, workgroup_size)"
// when = "sums"
// iterations = "batch * tokens * (q_heads // sets_q)"
// bindings = ["q", "dyq", "statistics", "column_sums"]
// [[pass]]
// entry_point = "sums_k"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(sets_k * dim, workgroup_size)"
// when = "sums * key"
// iterations = "batch * tokens * (k_heads // sets_k)"
// bindings = ["q", "k", "dyk", "statistics", "column_sums"]
// [[pass]]
// entry_point = "finish"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(columns, workgroup_size)"
// per = "call"
// when = "sums"
// bindings = ["column_sums", "dweight_q", "dweight_k", "dbias_q", "dbias_k"]
// [accuracy]
// serial_terms = "cols"
// column_terms = "batch * tokens * max(q_heads // sets_q, k_heads // sets_k)"
// ///
{% set row_elements, row_count = true, "(params.batch * " ~ tokens * heads ~ "u)" %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/qk_norm_access.wgsl" import by_kind, load_x, load_dy, load_parameter, factor with context %}
{% include "lib/qk_norm_row.wgsl" %}
{% set summed = (["dweight"] if weight else []) + (["dbias"] if bias else []) %}

// Element e of dy, times the weight.
fn weighted_dy(head: Head, e: u32) -> f32 {
    var g: f32;
{% macro weighted(kind) %}
        g = {{ load_dy(kind, "e") }}{{ " * " ~ factor(load_parameter("weight", kind, "e")) if weight }};
{% endmacro %}
{{ by_kind(weighted) }}
    return g;
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // The mean, its rounding error, and the root, as in the forward direction.
    var mean = 0.0;
    var low = 0.0;
    var squares = 0.0;
{% if has_mean %}
    let pivot = pivot_of(row);
    for (var j = 0u; j < STEPS; j++) {
        mean += load_row(row, j, thread) - pivot;
    }
    mean = pivot + mean * PER_COLUMN;
{% endif %}
    for (var j = 0u; j < STEPS; j++) {
        let d = load_row(row, j, thread) - mean;
        low += d{{ " * PER_COLUMN" if has_mean else " * 0.0" }};
        squares += d * (d * PER_COLUMN);
    }
    let rstd = inverseSqrt(max(squares - low * low, 0.0) + params.eps);

    // The means of g * xhat and of g.
    let head = head_of(row);
    var along = 0.0;
    var across = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        let g = weighted_dy(head, j);
        along += g * (load_row(row, j, thread) - mean - low) * rstd * PER_COLUMN;
{% if has_mean %}
        across += g * PER_COLUMN;
{% endif %}
    }

    for (var j = 0u; j < STEPS && row_exists; j++) {
        let xhat = (load_row(row, j, thread) - mean - low) * rstd;
        let dx = (weighted_dy(head, j) - xhat * along - across) * rstd;
{% macro store(kind) %}
        store_d{{ kind }}(head.dx + j, dx);
{% endmacro %}
{{ by_kind(store) }}
    }
    let at = params.statistics_start + 3u * row;
    if (row_exists) {
        statistics[at] = mean;
        statistics[at + 1u] = low;
        statistics[at + 2u] = rstd;
    }

    {% endcall %}
}
{% for kind, sets in [("q", sets_q), ("k", sets_k)] if sums and (key or kind == "q") %}

// The sums over all tokens, and over all heads that share a weight.
@compute @workgroup_size({{ workgroup_size }})
fn sums_{{ kind }}(
    {% include "lib/builtins.wgsl" %}
) {
    let column = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (column >= {{ sets }}u * dim) {
        return;
    }
    let e = column % dim;
    let first = column / dim;
    var dweight = 0.0;
    var dbias = 0.0;
    for (var token = 0u; token < params.batch * tokens; token++) {
        for (var number = first; number < {{ kind }}_heads; number += {{ sets }}u) {
            let head = head_in({{ "true" if kind == "k" else "false" }}, token, number);
            let at = params.statistics_start + 3u * row_of(head.is_key, token, number);
            let xhat = ({{ load_x(kind, "e") }} - statistics[at] - statistics[at + 1u]) * statistics[at + 2u];
            let dy = {{ load_dy(kind, "e") }};
            dweight += dy * xhat;
            dbias += dy;
        }
    }
{% for name in summed %}
    put_sum({{ loop.index0 * columns }}u + {{ sets_q ~ "u * dim + " if kind == "k" }}column, {{ name }});
{% endfor %}
}
{% endfor %}
{% if summed %}

// The slices of a split problem run one after the other and add to the same sums.
fn put_sum(at: u32, value: f32) {
    var sum = value;
    if (params.column_sums_kept != 0u) { sum += column_sums[at]; }
    column_sums[at] = sum;
}

@compute @workgroup_size({{ workgroup_size }})
fn finish(
    {% include "lib/builtins.wgsl" %}
) {
    let column = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (column < {{ sets_q }}u * dim) {
{% for name in summed %}
        store_{{ name }}_q(column, column_sums[{{ loop.index0 * columns }}u + column]);
{% endfor %}
    }{% if key %} else if (column < {{ columns }}u) {
{% for name in summed %}
        store_{{ name }}_k(column - {{ sets_q }}u * dim, column_sums[{{ loop.index0 * columns }}u + column]);
{% endfor %}
    }{% endif %}

}
{% endif %}
