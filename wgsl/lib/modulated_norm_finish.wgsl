{#- The last passes of a modulated norm's gradient: the gradients of gate and residual, which need the stored dx, then the
    sums over blocks, which give the gradients of scale, shift and gate, then the gradients of weight and bias. -#}
{% from "lib/op_gradient.wgsl" import record_sums with context %}
{% from "lib/modulated_norm_gradient.wgsl" import sum_names, suffix with context %}
{% from "lib/dtype.wgsl" import lanes, components with context %}
{% if has_gate %}
@compute @workgroup_size({{ column_threads }})
fn gates(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let thread = workgroup % {{ column_tiles }}u * {{ column_threads }}u + invocation;
    let block = block_of(workgroup / {{ column_tiles }}u);
    if (thread >= ACCESSES || block.members == 0u) {
        return;
    }
    let c = {{ lanes }}u * thread;
    let gate = load{{ suffix }}_gate(element_of(row_of(block.owner, 0u), c));
    var sum = Vec();
    for (var member = block.first; member < block.members; member += block.step) {
        let i = row_of(block.owner, member) * COLS + c;
        let dx = load{{ suffix }}_dx(i);
        sum += dx * load{{ suffix }}_residual(i);
        store{{ suffix }}_dresidual(i, dx * gate);
    }
{% for k in range(lanes) %}
    put_sum(block, {{ sum_names.index("along_gate") }}u, c + {{ k }}u, sum{{ "." ~ components[k] if lanes > 1 }});
{% endfor %}
}
{% endif %}
{% if sum_names %}
{{ record_sums() }}

// A workgroup takes {{ finish_columns }} columns of every {{ walkers }}th batch element.
@compute @workgroup_size({{ finish_shares * finish_columns }})
fn finish(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let c = workgroup % {{ finish_tiles }}u * {{ finish_columns }}u + invocation % {{ finish_columns }}u;
    let inside = min(c, COLS - 1u);
    let walker = workgroup / {{ finish_tiles }}u;
    let stores = invocation < {{ finish_columns }}u && c < COLS;
    let weight = {{ "load_weight(inside)" if has_weight else "1.0" }};
    let bias = {{ "load_bias(inside)" if has_bias else "0.0" }};
    var dweight = 0.0;
    var dbias = 0.0;
    // A dispatch of two dimensions may have more workgroups than there are.
    let count = select(0u, params.batch, walker < {{ walkers }}u);
    for (var owner = walker; owner < count; owner += {{ walkers }}u) {
{% for name in sum_names %}
        let {{ name }} = sum_records(sums_of(owner) + {{ loop.index0 }}u * COLS + inside, SUMS * COLS, BLOCKS, invocation);
{% endfor %}
        let e = owner * COLS + inside;
        let scale = 1.0{{ " + load_scale(e)" if has_scale }};
        if (stores) {
{% if has_scale %}
            store_dscale(e, along_xhat * weight{{ " + along_up * bias" if has_bias }});
{% endif %}
{% if has_shift %}
            store_dshift(e, along_up);
{% endif %}
{% if has_gate %}
            store_dgate(e, along_gate);
{% endif %}
        }
{% if has_weight %}
        dweight += scale * along_xhat;
{% endif %}
{% if has_bias %}
        dbias += scale * along_up;
{% endif %}
    }
{% if has_weight or has_bias %}
    if (stores && walker < {{ walkers }}u) {
        put_weight_sum(walker, 0u, c, dweight);
        put_weight_sum(walker, 1u, c, dbias);
    }
{% endif %}
}
{% endif %}
{% if has_weight or has_bias %}

// The slices of a split problem run one after the other and add to the same records.
fn put_weight_sum(walker: u32, sum: u32, c: u32, value: f32) {
    let at = (2u * walker + sum) * COLS + c;
    weight_sums[at] = value + select(0.0, weight_sums[at], params.weight_sums_kept != 0u);
}

@compute @workgroup_size({{ finish_columns }})
fn finish_weights(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let c = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ finish_columns }}u + invocation;
    if (c >= COLS) {
        return;
    }
    var dweight = 0.0;
    var dbias = 0.0;
    for (var walker = 0u; walker < {{ walkers }}u; walker++) {
        dweight += weight_sums[2u * walker * COLS + c];
        dbias += weight_sums[(2u * walker + 1u) * COLS + c];
    }
{% if has_weight %}
    store_dweight(c, dweight);
{% endif %}
{% if has_bias %}
    store_dbias(c, dbias);
{% endif %}
}
{% endif %}
