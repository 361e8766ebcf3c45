{#- The parameters of an entry point that works on a tile. It uses no subgroups. -#}
@builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
