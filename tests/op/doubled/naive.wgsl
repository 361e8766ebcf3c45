// /// webnorm
// summary = "One invocation per element."
// differs = "Nothing yet."
// rung = 1
// [tune]
// workgroup_size = [64]
// [default]
// workgroup_size = "64"
// [derive]
// subgroups = 0
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(images * channels * pixels, 64)"
// [[require]]
// rule = "channels * pixels % 2 == 0"
// why = "whole vec2"
// ///
{% include "lib/params.wgsl" %}
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    let at = (workgroup_id.y * workgroups.x + workgroup_id.x) * {{ workgroup_size }}u + invocation;
    if (at < params.images * {{ channels * pixels }}u) {
        y[params.y_start + at] = 2.0 * x[params.x_start + at];
    }
}
