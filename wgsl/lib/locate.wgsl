{#- The opening of an entry point: which row this invocation works on and which of the row's threads it is.

    `place` numbers the invocations of a workgroup so that subgroups are runs of it and a lane is its
    place within one. WGSL does not promise that of local_invocation_index. Where the builtin subgroup_id
    cannot be counted on, each subgroup draws a number: who works on what depends on the draw, the sums
    do not.

    Rows past the last are clamped to it, not left early: every invocation has to reach the barriers
    and subgroup operations. `row_exists` guards the store. -#}
{% if subgroups %}
{% if target == "native" %}
    let place = subgroup * subgroup_size + lane;
{% else %}
    // WGSL starts workgroup memory at zero; wgpu-native, which also runs this text, does not.
    if (invocation == 0u) { atomicStore(&subgroups_drawn, 0u); }
    workgroupBarrier();
    var drawn = 0u;
    if (lane == 0u) { drawn = atomicAdd(&subgroups_drawn, 1u); }
    let place = subgroupBroadcastFirst(drawn) * subgroup_size + lane;
{% endif %}
{% else %}
    let subgroup_size = 1u;  // without subgroups, every invocation is one of its own
    let lane = 0u;
    let place = invocation;
{% endif %}
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
{% if rows_per_workgroup == 1 %}
    let thread = place;
    let row_index = workgroup;
{% else %}
    let thread = place % THREADS;
    let row_index = workgroup * {{ rows_per_workgroup }}u + place / THREADS;
{% endif %}
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
