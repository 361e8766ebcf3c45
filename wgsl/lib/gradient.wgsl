{#- Common parts of the gradients. Sums over rows (dweight, dbias, dresidual_bias) need two dispatches, because the order
    of workgroups within one is undefined. Each workgroup writes a record of partial sums, and `finish` adds the records
    in a fixed order, so that every run gives the same bits.

    A record has `sums` rows of CHUNKS vec4. If a row's start shifts its chunks, the columns of an invocation depend on
    the row modulo 4. Rows in one accumulator are then a multiple of four apart, and the record is written column by
    column. -#}
{% from "lib/column_sums.wgsl" import summed, column_stores with context %}
{% from "lib/dtype.wgsl" import chunked, shifted with context %}
{#- A record of `row_sums`: mean_gx is the mean of g * x̂, low the mean's second word, mean_g the mean of g. -#}
{% set row_names = ["rstd", "mean_gx"] + (["mean", "low", "mean_g"] if has_mean else []) %}
{% set row_words = row_names | length %}
const CHUNKS = {{ (cols + 3) // 4 }}u;  // vec4 per row of a record
{% if summed %}
{% set partial = "f32" if shifted or not chunked else "vec4<f32>" %}

// The slices of a split problem run one after the other and add to the same records.
fn put_partial(at: u32, value: {{ partial }}) {
    var sum = value;
    if (params.partials_kept != 0u) { sum += partials[at]; }
    partials[at] = sum;
}

fn store_partial(record: u32, sum: u32, j: u32, thread: u32, value: Vec) {
{% if not chunked %}
    if (live(j, thread)) { put_partial((record * {{ summed|length }}u + sum) * 4u * CHUNKS + access(j, thread), value); }
{% elif not shifted %}
    if (live(j, thread)) { put_partial((record * {{ summed|length }}u + sum) * CHUNKS + access(j, thread), value); }
{% else %}
    let wanted = live(j, thread);
    let at = vec4((record * {{ summed|length }}u + sum) * 4u * CHUNKS) + columns(j, thread);
{% for c in "xyzw" %}
    if (wanted.{{ c }}) { put_partial(at.{{ c }}, value.{{ c }}); }
{% endfor %}
{% endif %}
}

{{ column_stores() }}
var<workgroup> finish_sums: array<vec4<f32>, {{ finish_chunks * finish_records }}>;

// {{ finish_records }} invocations share the records of a chunk, {{ finish_chunks }} chunks to a workgroup.
@compute @workgroup_size({{ finish_chunks * finish_records }})
fn finish(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let share = invocation / {{ finish_chunks }}u;
    const PER_RECORD = {{ summed|length }}u * CHUNKS;
{% if capped %}
    for (var item = workgroup; item * {{ finish_chunks }}u < PER_RECORD; item += workgroups.x * workgroups.y) {
{% else %}
    let item = workgroup;
{% endif %}
    let at = item * {{ finish_chunks }}u + invocation % {{ finish_chunks }}u;
    let inside = min(at, PER_RECORD - 1u);
    var sum = vec4<f32>();
    for (var record = share; record < params.partials_count; record += {{ finish_records }}u) {
{% if chunked and not shifted %}
        sum += partials[record * PER_RECORD + inside];
{% else %}
        let first = 4u * (record * PER_RECORD + inside);
        sum += vec4(partials[first], partials[first + 1u], partials[first + 2u], partials[first + 3u]);
{% endif %}
    }
    finish_sums[invocation] = sum;
    workgroupBarrier();
{% for power in range(7, -1, -1) if 2 ** power < finish_records %}
    if (share < {{ 2 ** power }}u) {
        finish_sums[invocation] += finish_sums[invocation + {{ finish_chunks * 2 ** power }}u];
    }
    workgroupBarrier();
{% endfor %}
    if (share == 0u && at < PER_RECORD) {
        let chunk = at % CHUNKS;
{% for name in summed %}
        if (at / CHUNKS == {{ loop.index0 }}u) { store_{{ name }}(chunk, finish_sums[invocation]); }
{% endfor %}
    }
{% if capped %}
    workgroupBarrier();  // before the next item's sums
    }
{% endif %}
}
{% endif %}
