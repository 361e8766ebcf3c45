// /// webnorm
// ops = ["layer_norm", "rms_norm"]
// summary = "Splits a row into parts over many workgroups; a second dispatch joins their statistics and normalizes."
// differs = "For few long rows: one workgroup per row, as in registers, would leave most of the adapter idle. Reads x twice, the second time mostly from cache."
// rung = 10
// layout = "row_in_parts"
// [tune]
// vector_width = [4, 8, 1]
// subgroups = [true, false]
// [default]
// part_steps = [["software", [["span <= 256", 2], ["span <= 1024", 8], 16]], 4]
// [[require]]
// rule = "vector_width > 1 or not packed"
// why = "types narrower than a word need vector_width 4, because they are read four at a time"
// [[require]]
// rule = "vector_width < 8 or (itemsize == 2 and cols % 8 == 0 and part_steps % 2 == 0)"
// why = "vector_width 8 needs float16 or bfloat16 (16 bytes per access), a multiple of eight columns and even part_steps"
// [[require]]
// rule = "part_steps * min(vector_width, 4) <= 64"
// why = "more than 64 columns per invocation do not fit registers, and are too many terms for one float32 sum"
// [[require]]
// rule = "not row_scaled"
// why = "the scale of an int8 row depends on all of its columns, but each workgroup sees only a part"
// [[scratch]]
// name = "parts"
// words = "(3 if has_mean else 1) * row_parts"
// [[pass]]
// entry_point = "measure"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(rows * row_parts, max_workgroups)"
// iterations = "ceil_div(rows * row_parts, max_workgroups) * (4 + 3 * (threads_per_row // 16))"
// bindings = ["x", "residual", "residual_bias", "parts"]
// [[pass]]
// entry_point = "normalize_rows"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(rows * row_parts, max_workgroups)"
// iterations = "ceil_div(rows * row_parts, max_workgroups) * (4 + 2 * ceil_div(row_parts, threads_per_row) + 3 * (threads_per_row // 16))"
// [accuracy]
// serial_terms = "max(steps, ceil_div(row_parts, threads_per_row))"
// ///

// There is no barrier between workgroups, so they exchange data through memory and a second dispatch.
{% from "lib/split.wgsl" import each_part, part_functions, part_reductions, joining_reductions, part_moments, store_moments, joined_parts, moments with context %}
{% from "lib/moments.wgsl" import normalized with context %}
{% from "lib/write.wgsl" import write_registers with context %}
{% from "lib/direct.wgsl" import load_input with context %}
{% include "lib/norm.wgsl" %}

{{ part_functions() }}
{{ part_reductions() }}

{{ joining_reductions() }}

@compute @workgroup_size({{ workgroup_size }})
fn measure(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_part() %}

{% for j in range(steps) %}
    let h{{ j }} = {{ load_input }}(row, first + {{ j }}u, thread);
{% endfor %}
{{ part_moments("h") }}
{{ store_moments(moments) }}
    {% endcall %}
}

@compute @workgroup_size({{ workgroup_size }})
fn normalize_rows(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_part() %}

{% for j in range(steps) %}
    let h{{ j }} = {{ load_input }}(row, first + {{ j }}u, thread);
{% endfor %}
{{ joined_parts(moments) }}
    {% call(j) write_registers() %}{{ normalized("h" ~ j) }}{% endcall %}

    {% endcall %}
}
