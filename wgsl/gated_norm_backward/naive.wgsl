// /// webnorm
// summary = "One invocation per row for the row's sums, then one per column for dx and the sums over rows."
// differs = "Follows the formula directly; invocations share nothing."
// layout = "gated_gradient"
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [default]
// workgroup_size = "32 if software else 64"
// [derive]
// subgroups = 0
// threads_per_row = 1
// rows_per_workgroup = "workgroup_size"
// column_threads = "workgroup_size"
// groups = 16
// column_tiles = "ceil_div(accesses, column_threads)"
// row_words = "5 if has_mean else 2"
// rows_of_group = 1
// steps = "accesses"
// [[scratch]]
// name = "row_sums"
// words = "heads * row_words"
// [[pass]]
// entry_point = "along_rows"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows * heads, workgroup_size)"
// iterations = "1 + 3 * min(steps, 15000)"
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

// Two passes over the same arrays: along the rows, where neighbouring invocations read memory a row apart, and down the
// columns, where they read neighbouring elements.
{% set row_elements, row_count = true, "(params.rows * heads)" %}
{% from "lib/op_gradient.wgsl" import row_pass, column_pass with context %}
{% from "lib/gated_norm_gradient.wgsl" import sums, row_sums_buffer with context %}
{% include "lib/gated_norm_gradient.wgsl" %}

{{ row_pass(row_sums_buffer) }}

{{ column_pass(row_sums_buffer, sums) }}
{% include "lib/gated_norm_finish.wgsl" %}
