{#- Where an invocation is. `place` numbers the invocations of a workgroup so that subgroups are runs of it and a lane is
    its place within one. WGSL does not promise that of local_invocation_index. -#}
{#- `body`: text that follows, where it is known. What it does not name is left out. -#}
{% macro locate(body="thread subgroup_size lane") %}
{% if subgroups %}
    let place = subgroup * subgroup_size + lane;
{% else %}
{% if "subgroup_size" in body %}
    let subgroup_size = 1u;  // without subgroups, every invocation is one of its own
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
