// Every workgroup moves one run of memory, `accesses` loads in flight per invocation before the first
// store. A copy is what a norm would cost if arithmetic were free, so it is timed beside every norm.

// `start` is the element of each per-row binding at which the slice's first row begins.
struct Params { rows: u32, start: u32, eps: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

const COLS = 768u;
const PER_COLUMN = 1.0 / f32(COLS);

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let first = workgroup * 256u + invocation;
    let start = params.start / 4u;
    let count = params.rows * COLS / 4u;
    let at0 = first + 0u;
    let value0 = x[start + min(at0, count - 1u)];
    if (at0 < count) {
        y[start + at0] = value0;
    }
}
