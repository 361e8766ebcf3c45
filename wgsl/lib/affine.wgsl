{#- y = normalized * weight + bias, each where the problem has it. -#}
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return normalized{{ " * load_weight(j, thread)" if has_weight }}{{ " + load_bias(j, thread)" if has_bias }};
}
