// /// webnorm
// summary = "Four pairs per access; an invocation turns them in several heads by angles that it loads once."
// differs = "16 bytes an access; the tables are read once for several heads."
// rung = 2
// [tune]
// workgroup_size = [64, 128, 256]
// heads_per_invocation = [1, 2, 4, 8]
// [default]
// workgroup_size = "64 if software else 256"
// heads_per_invocation = "4 if software else 2"
// [derive]
// vector_width = "4 if head_dim % 8 == 0 else 1"
// head_groups = "ceil_div(heads, heads_per_invocation)"
// runs = "head_dim // (2 * vector_width)"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(tokens * head_groups * runs, workgroup_size)"
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
    if (item >= params.tokens * {{ head_groups * runs }}u) {
        return;
    }
{% set lanes = "4" if vector_width == 4 else "" %}
    // An invocation processes a run of {{ vector_width }} pairs.
    let run = item % {{ runs }}u;
    let token = item / {{ head_groups * runs }}u;
    let first_head = item / {{ runs }}u % {{ head_groups }}u * {{ heads_per_invocation }}u;
    let angle = {{ vector_width }}u * (token * {{ runs }}u + run);
    let c = load{{ lanes }}_cos(angle);
    let s = load{{ lanes }}_sin(angle);
{% set pitch = vector_width if layout == "halves" else 2 * vector_width %}
{% set distance = vector_width * runs if layout == "halves" else vector_width %}
    // A head past the end repeats the last head, with the same result.
{% for j in range(heads_per_invocation) %}
    let head{{ j }} = token * heads + min(first_head + {{ j }}u, heads - 1u);
    let i{{ j }} = head{{ j }} * head_dim + {{ pitch }}u * run;
    let low{{ j }} = load{{ lanes }}_x(i{{ j }});
    let high{{ j }} = load{{ lanes }}_x(i{{ j }} + {{ distance }}u);
{% endfor %}
{% for j in range(heads_per_invocation) %}
{% if layout == "halves" or vector_width == 1 %}
    store{{ lanes }}_y(i{{ j }}, low{{ j }} * c - high{{ j }} * s);
    store{{ lanes }}_y(i{{ j }} + {{ distance }}u, low{{ j }} * s + high{{ j }} * c);
{% else %}
    // Pairs side by side: (a, b) becomes (a c - b s, b c + a s).
    store4_y(i{{ j }}, low{{ j }} * c.xxyy + low{{ j }}.yxwz * vec4(-s.x, s.x, -s.y, s.y));
    let turned{{ j }} = high{{ j }} * c.zzww + high{{ j }}.yxwz * vec4(-s.z, s.z, -s.w, s.w);
    store4_y(i{{ j }} + {{ distance }}u, turned{{ j }});
{% endif %}
{% endfor %}
}
