// /// webnorm
// summary = "One invocation per row for the row's sums, then one per column for dx and the sums over rows."
// differs = "Follows the formula directly; invocations share nothing."
// layout = "modulated_gradient"
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [default]
// workgroup_size = "32 if software else 64"
// [derive]
// subgroups = 0
// threads_per_row = 1
// rows_per_workgroup = "workgroup_size"
// column_threads = "workgroup_size"
// block_rows = 64
// row_words = "5 if has_mean else 2"
// steps = "accesses"
// [[pass]]
// entry_point = "along_rows"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(batch * rows, workgroup_size)"
// iterations = "1 + 3 * min(steps, 15000)"
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

// Two passes over the same arrays: along the rows, where neighbouring invocations read memory a row apart, and down the
// columns, where they read neighbouring elements.
{% set row_elements, row_count = true, "(params.batch * rows)" %}
{% from "lib/op_gradient.wgsl" import row_pass, column_pass with context %}
{% from "lib/modulated_norm_gradient.wgsl" import sums, row_sums_buffer with context %}
{% include "lib/modulated_norm_gradient.wgsl" %}

{{ row_pass(row_sums_buffer) }}

{{ column_pass(row_sums_buffer, sums) }}
{% include "lib/modulated_norm_finish.wgsl" %}
