// /// webnorm
// summary = "Several neighbouring vec4 of outputs per invocation, each vec4 of x loaded once for them."
// differs = "16 bytes an access, and a window of the input in registers."
// rung = 2
// [tune]
// workgroup_size = [64, 128, 256]
// outputs = [1, 2, 4]
// [default]
// workgroup_size = "64 if software else 256"
// outputs = "2 if software else 1"
// [derive]
// vector_width = "4 if length % 4 == 0 else 1"
// chunks = "ceil_div(length, 4 * outputs)"
// before = "taps - 1 if is_padding_causal else (taps - 1) // 2"
// lead = "ceil_div(before, 4)"
// phase = "4 * lead - before"
// blocks = "ceil_div(phase + taps, 4)"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * channels * chunks, workgroup_size)"
// iterations = "blocks"
// [accuracy]
// serial_terms = "taps"
// ///
{% include "lib/tensors.wgsl" %}

// Four elements of a row, beginning 4 * `lead` elements further left; 0 outside of the row.
fn window(row: u32, chunk: u32) -> vec4<f32> {
{% if vector_width == 4 %}
    let inside = chunk >= {{ lead }}u && chunk - {{ lead }}u < {{ length // 4 }}u;
    let x = load4_x(row * length + 4u * select(0u, chunk - {{ lead }}u, inside));
    return select(vec4(0.0), x, inside);
{% else %}
    var x = vec4(0.0);
{% for k in range(4) %}
    {
        let shifted = 4u * chunk + {{ k }}u;
        if (shifted >= {{ 4 * lead }}u && shifted - {{ 4 * lead }}u < length) {
            x[{{ k }}u] = load_x(row * length + shifted - {{ 4 * lead }}u);
        }
    }
{% endfor %}
    return x;
{% endif %}
}

// Four weights of a channel, of taps that begin at 4 * block - {{ phase }}; 0 for taps that do not exist.
fn weights(channel: u32, block: u32) -> vec4<f32> {
    var found = vec4(0.0);
{% for k in range(4) %}
    {
        let tap = 4u * block + {{ k }}u;
        if (tap >= {{ phase }}u && tap - {{ phase }}u < taps) {
            found[{{ k }}u] = load_w(channel * taps + tap - {{ phase }}u);
        }
    }
{% endfor %}
    return found;
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let item = workgroup * {{ workgroup_size }}u + invocation;
    let row = item / {{ chunks }}u;
    if (row >= params.batch * channels) {
        return;
    }
    let channel = row % channels;
    let first = item % {{ chunks }}u * {{ outputs }}u;
{% for j in range(outputs) %}
    var sum{{ j }} = vec4({{ "load_bias(channel)" if has_bias else "0.0" }});
    var x{{ j }} = window(row, first + {{ j }}u);
{% endfor %}
    for (var block = 0u; block < {{ blocks }}u; block++) {
        let w = weights(channel, block);
        let x{{ outputs }} = window(row, first + block + {{ outputs }}u);
{% for j in range(outputs) %}
{% set a, b = "x" ~ j, "x" ~ (j + 1) %}
        sum{{ j }} += w.x * {{ a }};
        sum{{ j }} += w.y * vec4({{ a }}.yzw, {{ b }}.x);
        sum{{ j }} += w.z * vec4({{ a }}.zw, {{ b }}.xy);
        sum{{ j }} += w.w * vec4({{ a }}.w, {{ b }}.xyz);
{% endfor %}
{% for j in range(outputs) %}
        x{{ j }} = x{{ j + 1 }};
{% endfor %}
    }
{% for j in range(outputs) %}
{% if vector_width == 4 %}
    if (first + {{ j }}u < {{ length // 4 }}u) {
        store4_y(row * length + 4u * (first + {{ j }}u), sum{{ j }});
    }
{% else %}
{% for k in range(4) %}
    if (4u * (first + {{ j }}u) + {{ k }}u < length) {
        store_y(row * length + 4u * (first + {{ j }}u) + {{ k }}u, sum{{ j }}[{{ k }}u]);
    }
{% endfor %}
{% endif %}
{% endfor %}
}
