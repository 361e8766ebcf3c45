{#- The last pass of a gated norm's gradient: the sums of all records, in a fixed order. -#}
{% from "lib/op_gradient.wgsl" import record_sums with context %}
{% from "lib/gated_norm_gradient.wgsl" import sums with context %}
{% if sums %}
const PARAMETERS = heads * COLS;
{{ record_sums() }}

@compute @workgroup_size({{ finish_shares * finish_columns }})
fn finish(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let p = workgroup * {{ finish_columns }}u + invocation % {{ finish_columns }}u;
    let inside = min(p, PARAMETERS - 1u);
{% for name, term in sums %}
    let {{ name }} = sum_records({{ loop.index0 }}u * PARAMETERS + inside, SUMS * PARAMETERS, params.partials_count, invocation);
{% endfor %}
    if (invocation < {{ finish_columns }}u && p < PARAMETERS) {
{% if has_weight %}
        store_dweight(p, along_xhat);
{% endif %}
{% if has_bias %}
        store_dbias(p, along_up);
{% endif %}
    }
}
{% endif %}
