// /// webnorm
// summary = "One invocation per group for dx, then one per channel for dweight and dbias."
// differs = "The shortest kernel: loops only, no exchange between invocations."
// layout = "row_per_invocation"
// [derive]
// has_mean = 1
// vector_width = 1
// [[scratch]]
// name = "group_stats"
// words = "3 * batch * groups"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * groups, workgroup_size)"
// iterations = "4 * steps"
// bindings = ["x", "dy", "weight", "bias", "dx", "group_stats"]
// [[pass]]
// entry_point = "sum_channels"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(channels, workgroup_size)"
// iterations = "batch * (spatial + 1)"
// bindings = ["x", "dy", "weight", "bias", "dweight", "dbias", "group_stats"]
// when = "has_weight + has_bias > 0"
// [accuracy]
// serial_terms = "cols"
// column_terms = "batch * spatial"
// ///
{% set row_elements, row_count = true, "(batch * groups)" %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/group_stats.wgsl" import write_group_stats with context %}
{% include "lib/group_gradient_row.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // The statistics, as in the forward kernel.
    let pivot = pivot_of(row);
    var sum = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        sum += load_row(row, j, thread) - pivot;
    }
    let mean = pivot + sum * PER_COLUMN;
    var deviations = 0.0;
    var squares = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        let d = load_row(row, j, thread) - mean;
        deviations += d * PER_COLUMN;
        squares += d * d * PER_COLUMN;
    }
    let rstd = inverseSqrt(max(squares - deviations * deviations, 0.0) + params.eps);

    // The means of g = dz * weight and of g * xhat.
    var mean_g = 0.0;
    var mean_gx = 0.0;
    for (var j = 0u; j < STEPS; j++) {
        let xhat = (load_row(row, j, thread) - mean - deviations) * rstd;
        let g = dz_of_row(row, j, thread, xhat) * weight_at(row, j, thread);
        mean_g += g * PER_COLUMN;
        mean_gx += g * xhat * PER_COLUMN;
    }

    for (var j = 0u; j < STEPS; j++) {
        let xhat = (load_row(row, j, thread) - mean - deviations) * rstd;
        let g = dz_of_row(row, j, thread, xhat) * weight_at(row, j, thread);
        store_dx_of_row(row, row_exists, j, thread, (g - xhat * mean_gx - mean_g) * rstd);
    }
{{ write_group_stats("deviations", "row_exists") }}

    {% endcall %}
}
{% if has_weight or has_bias %}

@compute @workgroup_size({{ workgroup_size }})
fn sum_channels(
    {% include "lib/builtins.wgsl" %}
) {
    let channel = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (channel >= channels) {
        return;
    }
    let weight = {{ "load_weight(channel)" if has_weight else "1.0" }};
    let bias = {{ "load_bias(channel)" if has_bias else "0.0" }};
    var dweight_sum = 0.0;
    var dbias_sum = 0.0;
    for (var n = 0u; n < batch; n++) {
        let at = params.group_stats_start + 3u * (n * groups + channel / GROUP_CHANNELS);
        for (var s = 0u; s < spatial; s++) {
            let i = n * (channels * spatial) + {{ "channel * spatial + s" if layout == "channels_first" else "s * channels + channel" }};
            let xhat = (load_h(i) - group_stats[at] - group_stats[at + 1u]) * group_stats[at + 2u];
            let dz = load_dz(i, xhat, weight, bias);
            dweight_sum += dz * xhat;
            dbias_sum += dz;
        }
    }
{% if has_weight %}
    store_dweight(channel, dweight_sum);
{% endif %}
{% if has_bias %}
    store_dbias(channel, dbias_sum);
{% endif %}
}
{% endif %}
