// /// webnorm
// summary = "One invocation per row for the row's sums, then one per column for dx and the sums over rows."
// differs = "The formula as it is written, with nothing shared between invocations."
// rung = 1
// preference = "9 if software and span > 2048 and not has_subgroups else 1"
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [default]
// workgroup_size = "32 if software else 64"
// [derive]
// subgroups = 0
// vector_width = "4 if packed or software else 1"
// threads_per_row = 1
// rows_per_workgroup = "workgroup_size"
// column_threads = "workgroup_size"
// groups = 4
// accesses = "ceil_div(span, 4) if vector_width == 4 else cols"
// steps = "ceil_div(accesses, threads_per_row)"
// column_tiles = "ceil_div(accesses, column_threads)"
// sums = "has_weight + has_bias + has_residual_bias"
// finish_chunks = 8
// finish_records = "4 if software else min(32, max_invocations // 8)"
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

// Two ways through the same arrays: along the rows, where neighbouring invocations read memory a row apart,
// and down the columns, where they read neighbours but each adds up a quarter of all rows one after another.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/gradient.wgsl" %}

{% include "lib/row_sums.wgsl" %}

{% include "lib/columns.wgsl" %}
