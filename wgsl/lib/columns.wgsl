{#- The last step of a gradient of rows of any length: `columns_of_rows` walks down the rows with an invocation for
    each chunk of columns, writes dx and adds up what is summed over rows. -#}
{% from "lib/column_sums.wgsl" import summed with context %}
{% from "lib/gradient.wgsl" import row_words with context %}
{% from "lib/dtype.wgsl" import chunked, shifted with context %}
@compute @workgroup_size({{ column_threads }})
fn columns_of_rows(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
{% if capped %}
    for (var item = workgroup; item < {{ column_tiles }}u * params.partials_count; item += workgroups.x * workgroups.y) {
{% else %}
    let item = workgroup;
{% endif %}
    let thread = item % {{ column_tiles }}u * {{ column_threads }}u + invocation;
    let group = item / {{ column_tiles }}u;
    // What lies past the row, or past the last group, is not stored.
    let exists = thread < {{ "(COLS + 6u) / 4u" if shifted else "ACCESSES" }} && group < params.partials_count;
{% if shifted %}
    row_shift = (params.x_start + group * COLS) % 4u;
{% endif %}
{% if has_weight %}
    let weight = load_weight(0u, thread);
{% endif %}
{% for name in summed %}
    var {{ name }}_sum = Vec();
{% endfor %}
    // Rows that are this far apart are added up in one record.
    for (var row = group; row < params.rows; row += params.partials_count) {
        let at = params.row_sums_start + row * {{ row_words }}u;
        let rstd = row_sums[at];
        let mean_gx = row_sums[at + 1u];
{% if has_mean %}
        let mean = row_sums[at + 2u];
        let low = row_sums[at + 3u];
        let mean_g = row_sums[at + 4u];
{% endif %}
        let xhat = (load_x(row, 0u, thread){{ " - mean - low" if has_mean }}) * rstd;
        let dy_value = load_dy(row, 0u, thread);
        let g = dy_value{{ " * weight" if has_weight }};
        let dx_value = (g - xhat * mean_gx{{ " - mean_g" if has_mean }}) * rstd{{ " + load_dh(row, 0u, thread)" if has_dh }};
        store_dx(row, exists, 0u, thread, dx_value);
{% if has_weight %}
        dweight_sum += dy_value * xhat;
{% endif %}
{% if has_bias %}
        dbias_sum += dy_value;
{% endif %}
{% if has_residual_bias %}
        dresidual_bias_sum += dx_value;
{% endif %}
    }
{% if summed %}
    if (exists) {
{% for name in summed %}
        store_partial(group, {{ loop.index0 }}u, 0u, thread, {{ name }}_sum);
{% endfor %}
    }
{% endif %}
{% if capped %}
    }
{% endif %}
}
