{#- `joined_parts(part, place, lane, subgroup_size)`: the maximum of a row, and the sum of exp(z - maximum), from the parts
    that its invocations have. One reduction combines both, because two would need another barrier. -#}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% macro part_reduction() %}
// The part with the smaller maximum is rescaled.
fn join(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let scale = exp(-abs(a.x - b.x));
    return vec2(max(a.x, b.x), select(fma(a.y, scale, b.y), fma(b.y, scale, a.y), a.x >= b.x));
}

{{ row_reduction("joined_parts", "vec2<f32>", "join") }}
{% endmacro %}
