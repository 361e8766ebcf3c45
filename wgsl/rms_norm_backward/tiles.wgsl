// /// webnorm
// summary = "A workgroup per row for the row's sums, then tiles of columns: rows of any length."
// differs = "Shares a row among the invocations of a workgroup, and the rows among groups; x and dy are read twice, or more often where statistics are not saved."
// rung = 2
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// column_threads = [8, 32, 64, 128, 256]
// groups = [4, 16, 64, 128, 256, 512]
// row_batch = [1, 2, 4]
// [default]
// threads_per_row = "8 if software else min(256, max_invocations)"
// column_threads = "8 if software else 64"
// groups = "(4 if rows <= 200000 else 64) if software else (512 if cols <= 1024 else (128 if cols <= 8192 else 64))"
// [derive]
// subgroups = 0
// vector_width = 4
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// accesses = "ceil_div(span, 4) if vector_width == 4 else cols"
// steps = "ceil_div(accesses, threads_per_row)"
// column_tiles = "ceil_div(accesses, column_threads)"
// sums = "has_weight + has_bias + has_residual_bias"
// finish_chunks = 8
// finish_records = "4 if software else min(32, max_invocations // 8)"
// [[require]]
// rule = "max(threads_per_row, column_threads) <= max_invocations"
// why = "more invocations per workgroup than the adapter has"
// [[scratch]]
// name = "row_sums"
// words = 2
// [[scratch]]
// name = "partials"
// records = "groups"
// words = "max(4 * ceil_div(cols, 4) * sums, 4)"
// [[pass]]
// entry_point = "rows"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(ceil_div(rows, rows_per_workgroup), max_workgroups)"
// iterations = "ceil_div(rows, rows_per_workgroup * max_workgroups) * (1 + 4 * min(steps, 15000))"
// bindings = ["x", "dy", "weight", "stats", "row_sums"]
// [[pass]]
// entry_point = "columns_of_rows"
// workgroup_size = "column_threads"
// workgroup_count = "min(column_tiles * groups, max_workgroups)"
// iterations = "ceil_div(column_tiles * groups, max_workgroups) * (1 + ceil_div(rows, groups))"
// bindings = ["x", "dy", "weight", "dh", "dx", "row_sums", "partials"]
// [[pass]]
// entry_point = "finish"
// workgroup_size = "finish_chunks * finish_records"
// workgroup_count = "min(ceil_div(sums * ceil_div(cols, 4), finish_chunks), max_workgroups)"
// per = "call"
// when = "sums > 0"
// bindings = ["partials", "dweight", "dbias", "dresidual_bias"]
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(rows, groups)"
// ///

// A column's sum is shared by `groups` workgroups, whose partial sums are added at the end; a row may be as
// long as a buffer.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/gradient.wgsl" %}

{% include "lib/row_sums.wgsl" %}

{% include "lib/columns.wgsl" %}
