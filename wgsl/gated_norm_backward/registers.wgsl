// /// webnorm
// summary = "A workgroup goes from row to row of one head, with the rows and their sums in registers."
// differs = "Reads x and dy once, and has one dispatch over the rows (tiles has two)."
// rung = 2
// layout = "gated_gradient"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8]
// groups = [4, 16, 64, 132, 264, 528, 1056]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software", [["cols <= 256", 8], ["cols <= 1024", 32], ["cols <= 4096", 128], 512]],
//     ["cols <= 256", 32],
//     ["cols <= 1024", 64],
//     ["cols <= 2048", 128],
//     ["cols <= 8192", "min(256, max_invocations)"],
//     ["cols <= 16384", "min(512, max_invocations)"],
//     "min(1024, max_invocations)",
// ]
// rows_per_workgroup = [["software or cols > 1024", 1], ["cols <= 256", 8], 4]
// groups = [["software", 4], ["heads > 4", 64], ["cols > 1024", 264], 1056]
// subgroups = "has_subgroups"
// [derive]
// loops_rows = 1
// row_words = 0
// rows_of_group = "rows_per_workgroup"
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "ceil_div(accesses, threads_per_row)"
// scalars = "steps * vector_width"
// workgroup_bytes = "(rows_per_workgroup > 1) * 4 * sums * scalars * threads_per_row + 56 * workgroup_size // (4 if subgroups else 1)"
// [[require]]
// rule = "workgroup_size <= 1024"
// why = "threads_per_row * rows_per_workgroup exceeds 1024 invocations per workgroup"
// [[require]]
// rule = "scalars <= 32"
// why = "x, dy and the sums of more than 32 columns per invocation do not fit registers"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "heads * min(groups, ceil_div(rows, rows_per_workgroup))"
// iterations = "ceil_div(rows, groups * rows_per_workgroup) * (4 + 3 * (threads_per_row // 16))"
// bindings = ["x", "z", "dy", "weight", "bias", "dx", "dz", "partials"]
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(rows, groups * rows_per_workgroup)"
// ///
{% set row_elements, row_count = true, "(params.rows * heads)" %}
{% from "lib/op_gradient.wgsl" import gradient_in_registers with context %}
{% from "lib/gated_norm_gradient.wgsl" import sums with context %}
{% include "lib/gated_norm_gradient.wgsl" %}

{{ gradient_in_registers(sums) }}
{% include "lib/gated_norm_finish.wgsl" %}
