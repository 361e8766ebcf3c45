{#- The position of an invocation. `place` numbers the invocations of a workgroup such that each subgroup is a contiguous
    range, in the order of lanes. WGSL does not guarantee this for local_invocation_index. -#}
{#- `body`: the text that follows, if known. Names that it does not contain are left out. -#}
{% macro locate(body="thread subgroup_size lane") %}
{% if subgroups %}
    let place = subgroup * subgroup_size + lane;
{% else %}
{% if "subgroup_size" in body %}
    let subgroup_size = 1u;  // without subgroups, every invocation counts as a subgroup
{% endif %}
{% if "lane" in body %}
    let lane = 0u;
{% endif %}
    let place = invocation;
{% endif %}
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
{% if "thread" not in body %}
{% elif rows_per_workgroup == 1 %}
    let thread = place;
{% else %}
    let thread = place % THREADS;
{% endif %}
{% endmacro %}
