// /// webnorm
// summary = "One workgroup per row for the row's sums, then tiles of columns: rows of any length."
// differs = "Shares a row among the invocations of a workgroup. Reads x and dy two or three times, after the first time mostly from cache."
// rung = 1
// layout = "gated_gradient"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// column_threads = [8, 32, 64, 128, 256]
// groups = [4, 16, 64, 132, 264, 528, 1056]
// subgroups = [true, false]
// [default]
// threads_per_row = "8 if software else min(256, max_invocations)"
// column_threads = "8 if software else 64"
// groups = [["software", 4], ["heads > 4", 64], 264]
// subgroups = "has_subgroups"
// [derive]
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// column_tiles = "ceil_div(accesses, column_threads)"
// row_words = "5 if has_mean else 2"
// rows_of_group = 1
// steps = "ceil_div(accesses, threads_per_row)"
// [[scratch]]
// name = "row_sums"
// words = "heads * row_words"
// [[pass]]
// entry_point = "along_rows"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows * heads"
// iterations = "1 + 3 * min(steps, 15000) + 3 * (threads_per_row // 16)"
// bindings = ["x", "z", "dy", "weight", "bias", "row_sums"]
// [[pass]]
// entry_point = "down_columns"
// workgroup_size = "column_threads"
// workgroup_count = "heads * min(groups, rows) * column_tiles"
// iterations = "ceil_div(rows, groups)"
// bindings = ["x", "z", "dy", "weight", "bias", "dx", "dz", "row_sums", "partials"]
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(rows, groups)"
// ///
{% set row_elements, row_count = true, "(params.rows * heads)" %}
{% from "lib/op_gradient.wgsl" import row_pass, column_pass with context %}
{% from "lib/gated_norm_gradient.wgsl" import sums, row_sums_buffer with context %}
{% include "lib/gated_norm_gradient.wgsl" %}

{{ row_pass(row_sums_buffer) }}

{{ column_pass(row_sums_buffer, sums) }}
{% include "lib/gated_norm_finish.wgsl" %}
