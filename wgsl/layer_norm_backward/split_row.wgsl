// /// webnorm
// ops = ["layer_norm_backward", "rms_norm_backward"]
// summary = "Splits a row into parts over many workgroups; a second dispatch joins their sums, then tiles of columns follow."
// differs = "For few long rows: one workgroup per row, as in tiles, would leave most of the adapter idle. Reads x and dy twice, the second time mostly from cache."
// rung = 4
// layout = "gradient_by_columns"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [32, 64, 128, 256, 512, 1024]
// part_steps = [1, 2, 4, 8]
// column_threads = [8, 32, 64, 128, 256]
// groups = [1, 2, 4, 8, 16, 64]
// row_batch = [1, 2, 4]
// subgroups = [true, false]
// [default]
// threads_per_row = "32 if software else min(256, max_invocations)"
// part_steps = [["software", [["span <= 256", 2], 8]], 4]
// column_threads = "8 if software else 64"
// groups = "4 if rows < 1024 or (software and rows <= 200000) else 64"
// subgroups = "has_subgroups"
// [derive]
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// steps = "part_steps"
// row_parts = "ceil_div(accesses, threads_per_row * part_steps)"
// [[require]]
// rule = "groups % 4 == 0 or span == cols"
// why = "unless rows start at multiples of four columns, groups must be a multiple of 4"
// [[scratch]]
// name = "parts"
// words = "((0 if saved_stats else 3 if has_mean else 1) + (2 if has_mean else 1)) * row_parts"
// [[pass]]
// entry_point = "measure"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(rows * row_parts, max_workgroups)"
// iterations = "ceil_div(rows * row_parts, max_workgroups) * (4 + 3 * (threads_per_row // 16))"
// bindings = ["x", "dy", "weight", "stats", "parts"]
// [[pass]]
// entry_point = "join"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(rows, max_workgroups)"
// iterations = "ceil_div(rows, max_workgroups) * (4 + 3 * ceil_div(row_parts, threads_per_row) + 3 * (threads_per_row // 16))"
// bindings = ["stats", "parts", "row_sums"]
// [accuracy]
// serial_terms = "max(steps, ceil_div(row_parts, threads_per_row))"
// column_terms = "ceil_div(rows, groups)"
// ///

// A part needs its row's statistics, which are only known after all parts are read. So the sums of a part are stored in
// a form that can be moved to the row's mean afterwards.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/gradient.wgsl" %}

{% include "lib/gradient_split.wgsl" %}

{% include "lib/columns.wgsl" %}
