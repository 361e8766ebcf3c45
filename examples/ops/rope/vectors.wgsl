// /// webnorm
// summary = "Four pairs per access; an invocation turns the same pairs of several heads by angles that it loads once."
// differs = "16 bytes an access; the tables are read once for several heads."
// rung = 2
// [tune]
// workgroup_size = [64, 128, 256]
// heads_per_invocation = [1, 2, 4, 8]
// [default]
// workgroup_size = "64 if software else 256"
// heads_per_invocation = "min(heads, 4) if software else min(heads, 2)"
// [derive]
// vector_width = 4
// head_groups = "ceil_div(heads, heads_per_invocation)"
// quads = "head_dim // 8"
// [[require]]
// rule = "head_dim % 8 == 0"
// why = "four pairs are turned at a time"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(tokens * head_groups * quads, workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let item = workgroup * {{ workgroup_size }}u + invocation;
    if (item >= params.tokens * {{ head_groups * quads }}u) {
        return;
    }
    let quad = item % {{ quads }}u;
    let token = item / {{ head_groups * quads }}u;
    let first_head = item / {{ quads }}u % {{ head_groups }}u * {{ heads_per_invocation }}u;
    let angle = token * {{ 4 * quads }}u + 4u * quad;
    let c = load4_cos(angle);
    let s = load4_sin(angle);
{% set distance = 4 * quads if layout == "halves" else 4 %}
    // A head past the last is the last once more, with the same result.
{% for j in range(heads_per_invocation) %}
    let head{{ j }} = token * heads + min(first_head + {{ j }}u, heads - 1u);
    let i{{ j }} = head{{ j }} * head_dim + {{ 4 if layout == "halves" else 8 }}u * quad;
    let low{{ j }} = load4_x(i{{ j }});
    let high{{ j }} = load4_x(i{{ j }} + {{ distance }}u);
{% endfor %}
{% for j in range(heads_per_invocation) %}
{% if layout == "halves" %}
    store4_y(i{{ j }}, low{{ j }} * c - high{{ j }} * s);
    store4_y(i{{ j }} + {{ distance }}u, low{{ j }} * s + high{{ j }} * c);
{% else %}
{# Pairs side by side: (a, b) becomes (a c - b s, b c + a s). #}
    store4_y(i{{ j }}, low{{ j }} * c.xxyy + low{{ j }}.yxwz * vec4(-s.x, s.x, -s.y, s.y));
    store4_y(i{{ j }} + {{ distance }}u, high{{ j }} * c.zzww + high{{ j }}.yxwz * vec4(-s.z, s.z, -s.w, s.w));
{% endif %}
{% endfor %}
}
