{#- The parameters of an entry point. They are not in a struct, because Tint treats a struct as non-uniform if one
    member is, and `subgroup_size` has to be uniform. -#}
@builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
{% if subgroups %}
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
{% endif %}
