{#- The last step of a gradient of rows of any length: `columns_of_rows` walks down the rows with one invocation per
    chunk of columns, writes dx, and accumulates the sums over rows. -#}
{% from "lib/column_sums.wgsl" import summed with context %}
{% from "lib/gradient.wgsl" import row_names, row_words with context %}
{% from "lib/dtype.wgsl" import shifted with context %}
{% set batch = row_batch if row_batch is defined else 1 %}
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
    // Columns past the row, and groups past the last, are not stored.
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
    // Rows at this distance are added up in one record. The loads of a batch of rows overlap.
    for (var first = group; first < params.rows; first += {{ batch ~ "u * " if batch > 1 }}params.partials_count) {
{% for k in range(batch) %}
        let row{{ k }} = {{ "min(first + " ~ k ~ "u * params.partials_count, params.rows - 1u)" if k else "first" }};
        let x{{ k }} = load_x(row{{ k }}, 0u, thread);
        let dy{{ k }} = load_dy(row{{ k }}, 0u, thread);
{% if has_dh %}
        let dh{{ k }} = load_dh(row{{ k }}, 0u, thread);
{% endif %}
{% for name in row_names %}
        let {{ name ~ k }} = row_sums[params.row_sums_start + row{{ k }} * {{ row_words }}u + {{ loop.index0 }}u];
{% endfor %}
{% endfor %}
{% for k in range(batch) %}
        {{ "if (first + " ~ k ~ "u * params.partials_count < params.rows) " if k }}{
{% if tracing %}
            traced_row = row{{ k }};
{% endif %}
            let xhat = {{ "(x" ~ k ~ " - mean" ~ k ~ " - low" ~ k ~ ")" if has_mean else "x" ~ k }} * rstd{{ k }};
            let g = dy{{ k }}{{ " * weight" if has_weight }};
            let dx_value = (g - xhat * mean_gx{{ k }}{{ " - mean_g" ~ k if has_mean }}) * rstd{{ k }}{{ " + dh" ~ k if has_dh }};
            store_dx(row{{ k }}, exists, 0u, thread, dx_value);
{% for name, term in [("dweight", "dy" ~ k ~ " * xhat"), ("dbias", "dy" ~ k), ("dresidual_bias", "dx_value")] if name in summed %}
            {{ name }}_sum += {{ term }};
{% endfor %}
        }
{% endfor %}
    }
{% if tracing %}
    traced_row = traced_no_row;
{% endif %}
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
