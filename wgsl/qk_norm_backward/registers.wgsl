// /// webnorm
// summary = "Workgroups walk over the tokens of one head. Rows, the weight and the sums stay in registers."
// differs = "Reads x and dy once. Each workgroup writes a record of sums, which a second dispatch adds in a fixed order."
// rung = 2
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8, 16, 32]
// workgroups = [16, 132, 264, 528, 1056, 2112, 4224]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["cols <= 16", 2],
//     ["cols <= 32", 4],
//     ["cols <= 96", 8],
//     ["cols <= 128", 16],
//     ["cols <= 512", 32],
//     ["cols <= 2048", 128],
//     ["cols <= 8192", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["threads_per_row <= 8", 32], ["threads_per_row <= 16", 16], ["threads_per_row <= 32", 8], 1]
// workgroups = "16 if software else 2112"
// subgroups = "has_subgroups"
// [derive]
// packed = 0
// loops_rows = 1
// vector_width = "4 if cols % 4 == 0 and q_gap % 4 == 0 and (qkv or not key or k_gap % 4 == 0) else 1"
// groups = "max(1, workgroups // heads)"
// turn_iterations = "4 + 3 * (threads_per_row // 16)"
// two_dispatches = "weight and key and not qkv"
// sets_q = "q_heads if weight_per_head else 1"
// sets_k = "k_heads if weight_per_head else 1"
// finish_columns = 8
// finish_records = "4 if software else min(32, max_invocations // 8)"
// workgroup_bytes = "4 * sums * cols * (rows_per_workgroup > 1) + 48 * workgroup_size // (4 if subgroups else 1) + 64 * finish_records"
// [[require]]
// rule = "scalars <= 32"
// why = "x, dy, the weight and the sums of more than 32 columns per invocation do not fit registers"
// [[scratch]]
// name = "head_sums"
// records = "heads * min(groups, ceil_div(batch * tokens, rows_per_workgroup))"
// words = "sums * cols"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "heads * min(groups, ceil_div(batch * tokens, rows_per_workgroup))"
// when = "not two_dispatches"
// iterations = "ceil_div(batch * tokens, rows_per_workgroup * groups) * turn_iterations + sums * cols"
// bindings = ["q", "k", "dyq", "dyk", "weight_q", "weight_k", "dq", "dk", "head_sums"]
// [[pass]]
// entry_point = "queries"
// workgroup_size = "workgroup_size"
// workgroup_count = "q_heads * min(groups, ceil_div(batch * tokens, rows_per_workgroup))"
// when = "two_dispatches"
// iterations = "ceil_div(batch * tokens, rows_per_workgroup * groups) * turn_iterations + sums * cols"
// bindings = ["q", "dyq", "weight_q", "dq", "head_sums"]
// [[pass]]
// entry_point = "keys"
// workgroup_size = "workgroup_size"
// workgroup_count = "k_heads * min(groups, ceil_div(batch * tokens, rows_per_workgroup))"
// when = "two_dispatches"
// iterations = "ceil_div(batch * tokens, rows_per_workgroup * groups) * turn_iterations + sums * cols"
// bindings = ["k", "dyk", "weight_k", "dk", "head_sums"]
// [[pass]]
// entry_point = "finish"
// workgroup_size = "finish_columns * finish_records"
// workgroup_count = "ceil_div(cols, finish_columns) * sums * (sets_q + key * sets_k)"
// per = "call"
// when = "sums"
// iterations = "ceil_div(max(q_heads // sets_q, k_heads // sets_k) * groups, finish_records)"
// bindings = ["head_sums", "dweight_q", "dweight_k", "dbias_q", "dbias_k"]
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(batch * tokens, rows_per_workgroup * groups) + rows_per_workgroup + ceil_div(max(q_heads, k_heads) * groups, finish_records)"
// ///
{% set row_elements, row_count = true, "(params.batch * " ~ tokens * heads ~ "u)" %}
{% set vector_tensors = ["q", "k", "dyq", "dyk", "weight_q", "weight_k", "dq", "dk"] %}
{% from "lib/dtype.wgsl" import lanes, components with context %}
{% from "lib/direct.wgsl" import whole, total with context %}
{% from "lib/place.wgsl" import locate with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/qk_norm_access.wgsl" import suffix, kinds, by_kind, load_x, load_dy, load_parameter, factor with context %}
{% include "lib/qk_norm_row.wgsl" %}
{% set summed = (["dweight"] if weight else []) + (["dbias"] if bias else []) %}

const GROUPS = {{ groups }}u;  // workgroups of a head
const ROWS = {{ rows_per_workgroup }}u;  // rows of a workgroup at a time
{% if summed %}
const SUMS = {{ sums }}u;  // sums of a column

// The slices of a split problem run one after the other and add to the same records.
fn put_sum(record: u32, at: u32, value: f32) {
    let place = record * (SUMS * COLS) + at;
    var sum = value;
    if (params.head_sums_kept != 0u) { sum += head_sums[place]; }
    head_sums[place] = sum;
}
{% endif %}

{{ moment_reductions() }}

{{ row_reduction("sum_gradients", "vec2<f32>" if has_mean else "f32") }}
{% if summed and rows_per_workgroup > 1 %}

// The sums of all rows of a workgroup.
var<workgroup> merged: array<f32, {{ sums * cols }}>;
{% endif %}
{% macro held(j) -%}x{{ j }}{%- endmacro %}
{% macro load_weight(kind) %}
{% for j in range(steps) %}
        weight{{ j }} = {{ factor(load_parameter("weight", kind, "i" ~ j)) }};
{% endfor %}
{% endmacro %}
{% macro load(kind) %}
{% if has_mean %}
        first_element = {{ load_x(kind, "0u") }}{{ ".x" if lanes > 1 }};
{% endif %}
{% for j in range(steps) %}
        x{{ j }} = {{ load_x(kind, "i" ~ j) }};
        dy{{ j }} = {{ load_dy(kind, "i" ~ j) }};
{% endfor %}
{% endmacro %}
{% macro store(kind) %}
{% for j in range(steps) %}
        if (live({{ j }}u, thread)) {
            store{{ suffix }}_d{{ kind }}(head.dx + i{{ j }}, dx{{ j }});
        }
{% endfor %}
{% endmacro %}
{#- An entry point for the heads of some kinds. If all tensors are more than the eight buffers that every device has, the
    queries and the keys are two dispatches. -#}
{% macro entry_point(name, kinds) %}
{% set first_head = 0 if "q" in kinds else q_heads %}
{% set own_heads = (q_heads if "q" in kinds else 0) + (k_heads if "k" in kinds else 0) %}

@compute @workgroup_size({{ workgroup_size }})
fn {{ name }}(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    // Neighbouring workgroups have neighbouring heads of the same tokens.
    let index = {{ first_head }}u + workgroup % {{ own_heads }}u;
    let group = workgroup / {{ own_heads }}u;
    let record = group * {{ heads }}u + index;
    let is_key = index >= q_heads;
    let number = select(index, index - q_heads, is_key);
    let all_rows = params.batch * tokens;
    let groups = min(GROUPS, (all_rows + ROWS - 1u) / ROWS);
    // A dispatch of two dimensions may have more workgroups than there are groups.
    let rows = select(0u, all_rows, group < groups);

{% for j in range(steps) %}
    let i{{ j }} = {{ lanes ~ "u * " if lanes > 1 }}inside({{ j }}u, thread);
{% for name in summed %}
    var {{ name }}{{ j }} = Vec();
{% endfor %}
{% if weight %}
    var weight{{ j }}: Vec;
{% endif %}
{% endfor %}
{% if weight %}
    {
        let head = head_in(is_key, 0u, number);
{{ by_kind(load_weight, kinds) }}
    }
{% endif %}
    for (var first = group * ROWS; first < rows; first += groups * ROWS) {
        let token_index = first + place / THREADS;
        let row_exists = token_index < rows;
        let token = min(token_index, rows - 1u);
        let head = head_in(is_key, token, number);
{% if has_mean %}
        var first_element: f32;
{% endif %}
{% for j in range(steps) %}
        var x{{ j }}: Vec;
        var dy{{ j }}: Vec;
{% endfor %}
{{ by_kind(load, kinds) }}
{% for j in range(steps) if not whole %}
        x{{ j }} = where_live(x{{ j }}, Vec(), {{ j }}u, thread);
        dy{{ j }} = where_live(dy{{ j }}, Vec(), {{ j }}u, thread);
{% endfor %}
{{ held_moments(held, held, steps, "select(first_element, 0.0, abs(first_element) > 1e35)" if has_mean else "") }}
{{ held_scale(steps) }}
        var along = Vec();
{% if has_mean %}
        var across = Vec();
{% endif %}
{% for j in range(steps) %}
        let xhat{{ j }} = {{ held_normalized(j, steps, held) }};
        let g{{ j }} = dy{{ j }}{{ " * weight" ~ j if weight }};
        along += g{{ j }} * xhat{{ j }};
{% if has_mean %}
        across += g{{ j }};
{% endif %}
{% endfor %}
{% if has_mean %}
        let means = sum_gradients(vec2({{ total("along") }}, {{ total("across") }}) * PER_COLUMN, place, lane, subgroup_size);
{% else %}
        let mean_gx = sum_gradients({{ total("along") }} * PER_COLUMN, place, lane, subgroup_size);
{% endif %}
{% for j in range(steps) %}
        let dx{{ j }} = (g{{ j }} - xhat{{ j }} * {{ "means.x - means.y" if has_mean else "mean_gx" }}) * rstd;
{% for name in summed %}
        {{ name }}{{ j }} += select(Vec(), dy{{ j }}{{ " * xhat" ~ j if name == "dweight" }}, row_exists);
{% endfor %}
{% endfor %}
        if (row_exists) {
{{ by_kind(store, kinds) }}
        }
        next_turn();
    }
{% if summed and rows_per_workgroup == 1 %}

    if (group < groups) {
{% for name in summed %}
{% for j in range(steps) %}
        if (live({{ j }}u, thread)) {
{% for c in components %}
            put_sum(record, {{ summed.index(name) }}u * COLS + i{{ j }} + {{ loop.index0 }}u, {{ name }}{{ j }}{{ "." ~ c if lanes > 1 }});
{% endfor %}
        }
{% endfor %}
{% endfor %}
    }
{% elif summed %}

    for (var turn_of = 0u; turn_of < ROWS; turn_of++) {
        if (place / THREADS == turn_of) {
{% for name in summed %}
{% for j in range(steps) %}
            if (live({{ j }}u, thread)) {
{% for c in components %}
{% set at = "merged[" ~ summed.index(name) ~ "u * COLS + i" ~ j ~ " + " ~ loop.index0 ~ "u]" %}
                {{ at }} = {{ name }}{{ j }}{{ "." ~ c if lanes > 1 }} + select({{ at }}, 0.0, turn_of == 0u);
{% endfor %}
            }
{% endfor %}
{% endfor %}
        }
        workgroupBarrier();
    }
    if (group < groups) {
        for (var at = place; at < SUMS * COLS; at += {{ workgroup_size }}u) {
            put_sum(record, at, merged[at]);
        }
    }
{% endif %}
}
{% endmacro %}
{% if two_dispatches %}
{{ entry_point("queries", ["q"]) }}
{{ entry_point("keys", ["k"]) }}
{% else %}
{{ entry_point("main", kinds) }}
{% endif %}
{% if summed %}

var<workgroup> finish_sums: array<f32, {{ finish_columns * finish_records }}>;

// {{ finish_records }} invocations share the records of a column. Sets of heads have a weight: first the heads of the queries.
@compute @workgroup_size({{ finish_columns * finish_records }})
fn finish(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    const PARTS = {{ (cols + finish_columns - 1) // finish_columns }}u;  // workgroups for a sum of all columns
    let item = workgroup_id.y * workgroups.x + workgroup_id.x;
    let column = item % PARTS * {{ finish_columns }}u + invocation % {{ finish_columns }}u;
    let which = item / PARTS % SUMS;
    let set_index = item / (PARTS * SUMS);
    let is_key = set_index >= {{ sets_q }}u;
    // The heads of the set.
    let first = select(set_index, set_index - {{ sets_q }}u + q_heads, is_key);
    let count = {{ "1u" if weight_per_head else ("select(q_heads, k_heads, is_key)" if key else "q_heads") }};
    let share = invocation / {{ finish_columns }}u;
    let inside = min(column, COLS - 1u);
    var sum = 0.0;
    for (var i = share; i < params.head_sums_count / {{ heads }}u * count; i += {{ finish_records }}u) {
        let record = i / count * {{ heads }}u + min(first + i % count, {{ heads - 1 }}u);
        sum += head_sums[(record * SUMS + which) * COLS + inside];
    }
    finish_sums[invocation] = sum;
    workgroupBarrier();
{% for power in range(7, -1, -1) if 2 ** power < finish_records %}
    if (share < {{ 2 ** power }}u) {
        finish_sums[invocation] += finish_sums[invocation + {{ finish_columns * 2 ** power }}u];
    }
    workgroupBarrier();
{% endfor %}
    if (share == 0u && column < COLS) {
{% for name in summed %}
        if (which == {{ loop.index0 }}u && !is_key) {
            store_{{ name }}_q(set_index * COLS + column, finish_sums[invocation]);
        }
{% if key %}
        if (which == {{ loop.index0 }}u && is_key && set_index < {{ sets_q + sets_k }}u) {
            store_{{ name }}_k((set_index - {{ sets_q }}u) * COLS + column, finish_sums[invocation]);
        }
{% endif %}
{% endfor %}
    }
}
{% endif %}
