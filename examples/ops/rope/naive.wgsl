// /// webnorm
// summary = "One invocation per pair of elements."
// rung = 1
// [tune]
// workgroup_size = [64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(tokens * heads * (head_dim // 2), workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

const pairs = head_dim / 2u;

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let i = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (i >= params.tokens * heads * pairs) {
        return;
    }
    let pair = i % pairs;
    let head = i / pairs;  // counted across all tokens
    let token = head / heads;
    let cos_value = load_cos(token * pairs + pair);
    let sin_value = load_sin(token * pairs + pair);
{% if layout == "halves" %}
    let first = head * head_dim + pair;
    let second = first + pairs;
{% else %}
    let first = head * head_dim + 2u * pair;
    let second = first + 1u;
{% endif %}
    let a = load_x(first);
    let b = load_x(second);
    store_y(first, a * cos_value - b * sin_value);
    store_y(second, a * sin_value + b * cos_value);
}
