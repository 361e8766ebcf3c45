// /// webnorm
// summary = "A workgroup per row, in which one subgroup adds the sums of all: else all subgroups add them."
// [features]
// subgroups = "subgroups"
// subgroup_uniformity = "with_feature"
// [tune]
// subgroups = [1, 0]
// with_feature = [1, 0]
// [default]
// subgroups = "has_subgroups"
// with_feature = "has_subgroups and has_subgroup_uniformity"
// [derive]
// workgroup_size = 128
// [[require]]
// rule = "subgroups or not with_feature"
// why = "subgroup_uniformity is about subgroups"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// [accuracy]
// serial_terms = "ceil_div(cols, workgroup_size) + 32"
// ///
{% include "lib/tensors.wgsl" %}

const THREADS = {{ workgroup_size }}u;

var<workgroup> terms: array<f32, {{ workgroup_size // 4 if subgroups else workgroup_size }}>;

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let row = min(workgroup, params.rows - 1u);
    var sum = 0.0;
    for (var i = invocation; i < cols; i += THREADS) {
        sum += load_x(row * cols + i);
    }
{% if subgroups %}
    sum = subgroupAdd(sum);
    if (lane == 0u) {
        terms[subgroup] = sum;
    }
    workgroupBarrier();
{% if with_feature %}
    // Uniform in each subgroup, but not in the workgroup.
    if (subgroup == 0u) {
{% else %}
    {
{% endif %}
        sum = 0.0;
        for (var i = lane; i < THREADS / subgroup_size; i += subgroup_size) {
            sum += terms[i];
        }
        sum = subgroupAdd(sum);
    }
    let is_writer = subgroup == 0u && lane == 0u;
{% else %}
    terms[invocation] = sum;
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (invocation < step) {
            terms[invocation] += terms[invocation + step];
        }
    }
    sum = terms[invocation];
    let is_writer = invocation == 0u;
{% endif %}
    if (is_writer && workgroup < params.rows) {
        store_y(row, sum);
    }
}
