// /// webnorm
// summary = "A subgroup of 32 invocations per row, else 32 invocations that add through workgroup memory."
// [tune]
// with_feature = [1, 0]
// [default]
// with_feature = "has_subgroup_size_control"
// [derive]
// subgroups = "with_feature"
// lanes = "min(max(subgroup_min_size, 32), subgroup_max_size) if with_feature else 32"
// workgroup_size = 128
// rows_per_workgroup = "workgroup_size // lanes"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, rows_per_workgroup)"
// subgroup_size = "lanes if with_feature else 0"
// [accuracy]
// serial_terms = "ceil_div(cols, lanes)"
// ///
{% include "lib/tensors.wgsl" %}

const LANES = {{ lanes }}u;

{% if with_feature %}
// A row has a whole subgroup: there are no barriers and no workgroup memory.
fn row_sum(own: f32, place: u32) -> f32 {
    return subgroupAdd(own);
}

@subgroup_size({{ lanes }})
{% else %}
var<workgroup> terms: array<f32, {{ workgroup_size }}>;

fn row_sum(own: f32, place: u32) -> f32 {
    terms[place] = own;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (place % LANES < step) {
            terms[place] += terms[place + step];
        }
    }
    return terms[place];
}

{% endif %}
@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
{% if with_feature %}
    let place = subgroup * LANES + lane;
{% else %}
    let place = invocation;
{% endif %}
    let wanted = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ rows_per_workgroup }}u + place / LANES;
    let row = min(wanted, params.rows - 1u);
    var own = 0.0;
    for (var i = place % LANES; i < cols; i += LANES) {
        own += load_x(row * cols + i);
    }
    let sum = row_sum(own, place);
    if (place % LANES == 0u && wanted < params.rows) {
        store_y(row, sum);
    }
}
