// /// webnorm
// summary = "A workgroup goes from row to row of a block, with x, dy and the sums of the block in registers."
// differs = "Reads x and dy once, and has one dispatch over the rows (tiles has two)."
// rung = 2
// layout = "modulated_gradient"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8]
// block_rows = [4, 8, 16, 32, 64]
// column_threads = [8, 32, 64, 128, 256]
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
// block_rows = [["cols <= 1024", 32], 16]
// column_threads = "8 if software else 64"
// subgroups = "has_subgroups"
// [derive]
// loops_rows = 1
// row_words = 0
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
// workgroup_count = "batch * blocks"
// iterations = "block_rows * (4 + 3 * (threads_per_row // 16))"
// bindings = ["x", "dy", "dh", "scale", "shift", "weight", "bias", "dx", "partials"]
// [accuracy]
// serial_terms = "steps"
// column_terms = "block_rows"
// ///
{% set row_elements, row_count = true, "(params.batch * rows)" %}
{% from "lib/op_gradient.wgsl" import gradient_in_registers with context %}
{% from "lib/modulated_norm_gradient.wgsl" import sums with context %}
{% include "lib/modulated_norm_gradient.wgsl" %}

{{ gradient_in_registers(sums) }}
{% include "lib/modulated_norm_finish.wgsl" %}
