// Every workgroup moves a contiguous range of memory. Each invocation starts `accesses` loads before its first store.
// A copy shows the cost of a norm if arithmetic were free, so every norm is compared with it. It moves four words at a
// time, whatever their type, and only the words of the rows at the end. Two slices may share a word: both write it,
// with the same bits.
// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
    rows: u32,
    eps: f32,
    scale: f32,
    x_start: u32,
    y_start: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

fn store(at: u32, value: vec4<u32>, words: u32) {
    if (at * 4u + 4u <= words) {
        y[at] = value;
        return;
    }
    for (var word = 0u; at * 4u + word < words; word++) {
        y[at][word] = value[word];
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let start = params.x_start / 4u;
    let words = (params.x_start + params.rows * 199u + 0u) / 1u;
    let end = (words + 3u) / 4u;
    let first = start + workgroup * 256u + invocation;
    let at0 = first + 0u;
    let value0 = x[min(at0, end - 1u)];
    if (at0 < end) {
        store(at0, value0, words);
    }
}
