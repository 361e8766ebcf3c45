// /// webnorm
// summary = "One invocation per output, tap after tap."
// rung = 1
// [tune]
// workgroup_size = [64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * channels * length, workgroup_size)"
// iterations = "taps"
// [accuracy]
// serial_terms = "taps"
// ///
{% include "lib/tensors.wgsl" %}

{% if padding == "causal" %}
const before = taps - 1u;
{% else %}
const before = (taps - 1u) / 2u;
{% endif %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let i = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (i >= params.batch * channels * length) {
        return;
    }
    let position = i % length;
    let channel = i / length % channels;
    var sum = 0.0;
    for (var tap = 0u; tap < taps; tap++) {
        // The sequence is padded with zeros before its begin and after its end.
        let padded = position + tap;
        if (padded >= before && padded - before < length) {
            sum += load_w(channel * taps + tap) * load_x(i - position + padded - before);
        }
    }
{% if has_bias %}
    sum += load_bias(channel);
{% endif %}
    store_y(i, sum);
}
