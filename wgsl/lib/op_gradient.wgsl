{#- Gradients of norms whose op has an op.py, for rows whose gradients of parameters are added up over sets of rows. The owner of a set is a
    batch element or a head.

    The op's snippet defines `sums`, a list of [name, text of the term], and these functions:

    - `load_row(row, j, thread) -> Vec`, the norm's input, and `load_dy_row(row, j, thread) -> Vec`, 0 past the row
    - `upstream(row, j, thread, xhat, dy) -> Vec`, the gradient of the normalized row times its weight
    - `factor(row, j, thread) -> Vec`, the product of all weights by which the normalized row is multiplied
    - `store_gradient(row, row_exists, j, thread, xhat, dy, d)`, which writes the outputs of step j from the gradient d of
      the norm's input
    - `block_of(item) -> Block`, `row_of(owner, member) -> u32`, and `put_sum(block, sum, column, value)`, which stores a
      partial sum of one column
    - `row_sums_of(row) -> u32`, the place of the row's sums in the buffer `row_sums_buffer`

    Terms may use `up`, the result of upstream, and `xhat`. -#}
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized, swept_moments, normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/place.wgsl" import locate with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/sweep.wgsl" import sweep_row with context %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/dtype.wgsl" import lanes, components with context %}
{% macro block_type() %}
// Rows whose sums one invocation adds up: the members `first`, `first + step`, ... of an owner's rows, below `members`.
struct Block {
    owner: u32,
    first: u32,
    step: u32,
    members: u32,
}
{% endmacro %}
{% macro gradient_reductions() %}
{{ moment_reductions() }}

{{ row_reduction("sum_gradients", "vec2<f32>" if has_mean else "f32") }}
{% endmacro %}
{% macro store_sums(names, j, thread) %}
{% for name in names %}
{% for c in range(lanes) %}
        put_sum(block, {{ names.index(name) }}u, {{ lanes }}u * access({{ j }}u, {{ thread }}) + {{ c }}u, {{ name ~ j }}{{ "." ~ components[c] if lanes > 1 }});
{% endfor %}
{% endfor %}
{% endmacro %}
{#- The text of `main`, for rows that stay in registers while a workgroup goes from row to row of a block. -#}
{% macro held(j) -%}h{{ j }}{%- endmacro %}
{% macro held_row_gradient(sums) %}
{{ held_moments(held, held, steps, "pivot_of(row)") }}
{{ held_scale(steps) }}
        var along = Vec();
        var across = Vec();
{% for j in range(steps) %}
        let xhat{{ j }} = {{ held_normalized(j, steps, held) }};
        let up{{ j }} = upstream(row, {{ j }}u, thread, xhat{{ j }}, dy{{ j }});
        let g{{ j }} = up{{ j }} * factor(row, {{ j }}u, thread);
        along += g{{ j }} * xhat{{ j }};
        across += g{{ j }};
{% endfor %}
{% if has_mean %}
        let means = sum_gradients(vec2({{ total("along") }}, {{ total("across") }}) * PER_COLUMN, place, lane, subgroup_size);
{% else %}
        let means = vec2(sum_gradients({{ total("along") }} * PER_COLUMN, place, lane, subgroup_size), 0.0);
{% endif %}
{% for j in range(steps) %}
        {
            let xhat = xhat{{ j }};
            let up = up{{ j }};
            store_gradient(row, row_exists, {{ j }}u, thread, xhat, dy{{ j }}, (g{{ j }} - xhat * means.x{{ " - means.y" if has_mean }}) * rstd);
{% for name, term in sums %}
            {{ name ~ j }} += {{ term if rows_per_workgroup == 1 else "select(Vec(), " ~ term ~ ", row_exists)" }};
{% endfor %}
        }
{% endfor %}
{% endmacro %}
{% macro gradient_in_registers(sums) %}
{% set names = sums | map("first") | list %}
{{ gradient_reductions() }}
{% if rows_per_workgroup > 1 and sums %}
// The sums of all rows of a workgroup.
var<workgroup> merged: array<Vec, {{ names | length * steps * threads_per_row }}>;
{% endif %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate() }}
    let block = block_of(workgroup);
{% for name in names %}
{% for j in range(steps) %}
    var {{ name ~ j }} = Vec();
{% endfor %}
{% endfor %}
    for (var group = block.first; group * {{ rows_per_workgroup }}u < block.members; group += block.step) {
        let member = group * {{ rows_per_workgroup }}u{{ " + place / THREADS" if rows_per_workgroup > 1 }};
        let row_exists = member < block.members;
        let row = row_of(block.owner, min(member, block.members - 1u));
{% for j in range(steps) %}
        let h{{ j }} = load_row(row, {{ j }}u, thread);
        let dy{{ j }} = load_dy_row(row, {{ j }}u, thread);
{% endfor %}
{{ held_row_gradient(sums) }}
        next_turn();
    }
{% if sums and rows_per_workgroup > 1 %}
{% for stream in range(rows_per_workgroup) %}
    if (place / THREADS == {{ stream }}u) {
{% for name in names %}
{% for j in range(steps) %}
        merged[{{ (names.index(name) * steps + j) * threads_per_row }}u + thread] {{ "+=" if stream else "=" }} {{ name ~ j }};
{% endfor %}
{% endfor %}
    }
    workgroupBarrier();
{% endfor %}
    if (place < THREADS && block.members > 0u) {
{% for name in names %}
{% for j in range(steps) %}
        {{ name ~ j }} = merged[{{ (names.index(name) * steps + j) * threads_per_row }}u + thread];
{% endfor %}
{% endfor %}
{% elif sums %}
    if (block.members > 0u) {
{% endif %}
{% for j in range(steps if sums else 0) %}
        if (live({{ j }}u, thread)) {
{{ store_sums(names, j, "thread") }}
        }
{% endfor %}
{{ "    }" if sums }}
}
{% endmacro %}
{#- The first pass for rows of any length: the sums of each row. -#}
{% macro row_pass(row_sums_buffer) %}
{{ gradient_reductions() }}

@compute @workgroup_size({{ workgroup_size }})
fn along_rows(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ swept_moments() }}
    var along = Vec();
    var across = Vec();
    {% call sweep_row() %}
        let xhat = {{ normalized("h") }};
        let g = upstream(row, j, thread, xhat, load_dy_row(row, j, thread)) * factor(row, j, thread);
        along += g * xhat * PER_COLUMN;
        across += g * PER_COLUMN;
    {% endcall %}
{% if has_mean %}
    let means = sum_gradients(vec2({{ total("along") }}, {{ total("across") }}), place, lane, subgroup_size);
{% else %}
    let means = vec2(sum_gradients({{ total("along") }}, place, lane, subgroup_size), 0.0);
{% endif %}
    if (thread == 0u && row_exists) {
        let at = row_sums_of(row);
        {{ row_sums_buffer }}[at] = rstd;
        {{ row_sums_buffer }}[at + 1u] = means.x;
{% if has_mean %}
        {{ row_sums_buffer }}[at + 2u] = means.y;
        {{ row_sums_buffer }}[at + 3u] = mean;
        {{ row_sums_buffer }}[at + 4u] = low;
{% endif %}
    }

    {% endcall %}
}
{% endmacro %}
{#- The second pass: an invocation for each Vec of columns of a block, which goes down the rows. -#}
{% macro column_pass(row_sums_buffer, sums) %}
@compute @workgroup_size({{ column_threads }})
fn down_columns(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = workgroup % {{ column_tiles }}u * {{ column_threads }}u + invocation;
    let block = block_of(workgroup / {{ column_tiles }}u);
    let exists = thread < ACCESSES;
{% for name, term in sums %}
    var {{ name }}0 = Vec();
{% endfor %}
    for (var member = block.first; member < block.members; member += block.step) {
        let row = row_of(block.owner, member);
        let at = row_sums_of(row);
        let rstd = {{ row_sums_buffer }}[at];
        let mean_gx = {{ row_sums_buffer }}[at + 1u];
{% if has_mean %}
        let mean_g = {{ row_sums_buffer }}[at + 2u];
        let mean = {{ row_sums_buffer }}[at + 3u];
        let low = {{ row_sums_buffer }}[at + 4u];
{% endif %}
        let h = load_row(row, 0u, thread);
        let dy = load_dy_row(row, 0u, thread);
        let xhat = {{ normalized("h") }};
        let up = upstream(row, 0u, thread, xhat, dy);
        let g = up * factor(row, 0u, thread);
        store_gradient(row, exists, 0u, thread, xhat, dy, (g - xhat * mean_gx{{ " - mean_g" if has_mean }}) * rstd);
{% for name, term in sums %}
        {{ name }}0 += {{ term }};
{% endfor %}
    }
    if (exists && block.members > 0u) {
{{ store_sums(sums | map("first") | list, 0, "thread") }}
    }
}
{% endmacro %}
{#- `sum_records(at, step, count, invocation)`: the sum of elements of `partials`, by {{ finish_shares }} invocations in
    a fixed order. All invocations of a workgroup have to call it. -#}
{% macro record_sums() %}
var<workgroup> shares: array<f32, {{ finish_shares * finish_columns }}>;

fn sum_records(at: u32, step: u32, count: u32, invocation: u32) -> f32 {
    var own = 0.0;
    for (var k = invocation / {{ finish_columns }}u; k < count; k += {{ finish_shares }}u) {
        own += partials[at + k * step];
    }
{% if finish_shares > 1 %}
    shares[invocation] = own;
    workgroupBarrier();
    own = 0.0;
    for (var k = 0u; k < {{ finish_shares }}u; k++) {
        own += shares[k * {{ finish_columns }}u + invocation % {{ finish_columns }}u];
    }
    workgroupBarrier();
{% endif %}
    return own;
}
{% endmacro %}
