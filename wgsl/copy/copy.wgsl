// /// webnorm
// summary = "y = x. Reads and writes each element once: the memory limit of the adapter."
// differs = "The roofline: on large data, no kernel that reads x and writes y can be faster."
// rung = 1
// [tune]
// workgroup_size = [64, 256, 1024]
// accesses = [1, 2, 4]
// [default]
// workgroup_size = "256"
// accesses = "4 if software else 1"
// [derive]
// subgroups = 0
// per_workgroup = "workgroup_size * accesses * 4"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(ceil_div(rows * cols * itemsize, 4) + 4, per_workgroup)"
// ///

// Every workgroup moves a contiguous range of memory. Each invocation starts `accesses` loads before its first store.
// A copy shows the cost of a norm if arithmetic were free, so every norm is compared with it. It moves four words at a
// time, whatever their type, and only the words of the rows at the end. Two slices may share a word: both write it,
// with the same bits.
{% from "lib/cost.wgsl" import tally with context %}
{% set whole = cols * itemsize % 16 == 0 %}
{% set per_word = 4 // itemsize %}
{% set per_access = 4 * per_word %}
{% include "lib/params.wgsl" %}
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;
{% if not whole %}

fn store(at: u32, value: vec4<u32>, words: u32) {
    if (at * 4u + 4u <= words) {
        y[at] = value;
        return;
    }
    for (var word = 0u; at * 4u + word < words; word++) {
        y[at][word] = value[word];
    }
}
{% endif %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let start = params.x_start / {{ per_access }}u;
{% if whole %}
    let end = (params.x_start + params.rows * {{ cols }}u) / {{ per_access }}u;
{% else %}
    let words = (params.x_start + params.rows * {{ cols }}u + {{ per_word - 1 }}u) / {{ per_word }}u;
    let end = (words + 3u) / 4u;
{% endif %}
    let first = start + workgroup * {{ workgroup_size * accesses }}u + invocation;
{% for k in range(accesses) %}
    let at{{ k }} = first + {{ k * workgroup_size }}u;
    let value{{ k }} = x[min(at{{ k }}, end - 1u)];
{% endfor %}
{% for k in range(accesses) %}
    if (at{{ k }} < end) {
        {{ "y[at" ~ k ~ "] = value" ~ k ~ ";" if whole else "store(at" ~ k ~ ", value" ~ k ~ ", words);" }}
        {{ tally("row_reads", per_access ~ "u") }}
        {{ tally("writes", per_access ~ "u") }}
    }
{% endfor %}
}
