{#- The functions for a normalized row's output: scale, shift, and storage type. lib/write.wgsl calls them. -#}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/dtype.wgsl" import chunked with context %}
{% from "lib/direct.wgsl" import where_live with context %}
{% from "lib/write.wgsl" import scaled, tracks_amax with context %}
// y before it is rounded to its storage type.
fn affine(normalized: Vec, j: u32, thread: u32) -> Vec {
    return {{ scaled("normalized", "load_weight(j, thread)", "load_bias(j, thread)") }};
}
{% if row_scaled or scale_block or tracks_amax %}

// The largest |y| of a Vec's existing columns, as bits. The bits of floats that are not negative have the same order as
// the floats, with NaN last; max() of floats may drop NaN.
fn greatest(y: Vec, j: u32, thread: u32) -> u32 {
    let size = {{ where_live("abs(y)", "Vec()", "j") }};
{% if chunked %}
    let bits = bitcast<vec4<u32>>(size);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
{% else %}
    return bitcast<u32>(size);
{% endif %}
}

{{ row_reduction("greatest_of_row", "u32", merge="max") if not scale_block else row_reduction("greatest_of_block", "u32", merge="max", block=scale_block // 4) }}
{% endif %}
{% if scale_block %}
{% set block = scale_block // 4 %}
const BLOCKS = {{ (cols + scale_block - 1) // scale_block }}u;  // of a row, {{ block }} vec4 each

// A scale that maps the largest value of {{ scale_block }} columns to 127. The neighbours that have them at step j call it
// together. Zeros get the scale for 2^-100.
fn scale_of_block(row: u32, row_exists: bool, j: u32, y: Vec, thread: u32, place: u32, lane: u32, subgroup_size: u32) -> f32 {
    let bits = greatest_of_block(greatest(y, j, thread), place, lane, subgroup_size);
    let largest = bitcast<f32>(max(bits, 0x0d800000u));
    if (thread % {{ block }}u == 0u && row_exists && live(j, thread)) {
        y_scale[params.y_scale_start + row * BLOCKS + access(j, thread) / {{ block }}u] = largest / 127.0;
    }
    return 127.0 / largest;
}
{% endif %}
{% if tracks_amax %}
// Runs before the first row.
@compute @workgroup_size(1)
fn open_amax() {
    atomicStore(&amax[0], 0u);
    atomicStore(&amax[1], bitcast<u32>(1.0 / params.scale));
}
{% endif %}
