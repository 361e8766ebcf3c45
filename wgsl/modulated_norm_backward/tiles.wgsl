// /// webnorm
// summary = "One workgroup per row for the row's sums, then tiles of columns: rows of any length."
// differs = "Shares a row among the invocations of a workgroup. Reads x and dy two or three times, after the first time mostly from cache."
// rung = 1
// layout = "modulated_gradient"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// column_threads = [8, 32, 64, 128, 256]
// block_rows = [4, 8, 16, 32, 64]
// subgroups = [true, false]
// [default]
// threads_per_row = "8 if software else min(256, max_invocations)"
// column_threads = "8 if software else 64"
// block_rows = 16
// subgroups = "has_subgroups"
// [derive]
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// row_words = "5 if has_mean else 2"
// steps = "ceil_div(accesses, threads_per_row)"
// [[pass]]
// entry_point = "along_rows"
// workgroup_size = "workgroup_size"
// workgroup_count = "batch * rows"
// iterations = "1 + 3 * min(steps, 15000) + 3 * (threads_per_row // 16)"
// bindings = ["x", "dy", "scale", "shift", "weight", "bias", "partials"]
// [[pass]]
// entry_point = "down_columns"
// workgroup_size = "column_threads"
// workgroup_count = "batch * blocks * column_tiles"
// iterations = "block_rows"
// bindings = ["x", "dy", "dh", "scale", "shift", "weight", "bias", "dx", "partials"]
// [accuracy]
// serial_terms = "steps"
// column_terms = "block_rows"
// ///
{% set row_elements, row_count = true, "(params.batch * rows)" %}
{% from "lib/op_gradient.wgsl" import row_pass, column_pass with context %}
{% from "lib/modulated_norm_gradient.wgsl" import sums, row_sums_buffer with context %}
{% include "lib/modulated_norm_gradient.wgsl" %}

{{ row_pass(row_sums_buffer) }}

{{ column_pass(row_sums_buffer, sums) }}
{% include "lib/modulated_norm_finish.wgsl" %}
