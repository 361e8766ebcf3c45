// /// webnorm
// summary = "y = x, each element read once and written once: the memory limit of the adapter."
// differs = "The roofline: no kernel that reads x and writes y can be faster for long."
// rung = 1
// [tune]
// workgroup_size = [64, 256, 1024]
// accesses = [1, 2, 4]
// [default]
// workgroup_size = "256"
// accesses = "4 if software else 1"
// [derive]
// subgroups = 0
// access_width = "4 if cols % 4 == 0 else 1"
// per_workgroup = "workgroup_size * accesses * access_width"
// [[require]]
// rule = "workgroup_size <= max_invocations"
// why = "more invocations per workgroup than the adapter has"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows * cols, per_workgroup)"
// ///

// Every workgroup moves one run of memory, `accesses` loads in flight per invocation before the first
// store. A copy is what a norm would cost if arithmetic were free, so it is timed beside every norm.
{% include "lib/interface.wgsl" %}
{% from "lib/cost.wgsl" import tally with context %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let first = workgroup * {{ workgroup_size * accesses }}u + invocation;
    let start = params.start{{ " / 4u" if access_width == 4 }};
    let count = params.rows * COLS{{ " / 4u" if access_width == 4 }};
{% for k in range(accesses) %}
    let at{{ k }} = first + {{ k * workgroup_size }}u;
    let value{{ k }} = x[start + min(at{{ k }}, count - 1u)];
{% endfor %}
{% for k in range(accesses) %}
    if (at{{ k }} < count) {
        y[start + at{{ k }}] = value{{ k }};
        {{ tally("x_reads", access_width ~ "u") }}
        {{ tally("writes", access_width ~ "u") }}
    }
{% endfor %}
}
