// /// webnorm
// ops = ["layer_norm_backward", "rms_norm_backward"]
// summary = "One workgroup per row for the row's sums, then tiles of columns: rows of any length."
// differs = "Shares a row among the invocations of a workgroup, and a column's sum among several workgroups. Reads x and dy twice, or more often without saved statistics."
// rung = 2
// layout = "gradient_by_rows_and_columns"
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256, 512, 1024]
// column_threads = [8, 32, 64, 128, 256]
// groups = [4, 16, 64, 128, 256, 512]
// row_batch = [1, 2, 4]
// [default]
// threads_per_row = "8 if software else min(256, max_invocations)"
// column_threads = "8 if software else 64"
// groups = [["software", [["rows <= 200000", 4], 64]], ["cols <= 1024", 512], ["cols <= 8192", 128], 64]
// [derive]
// rows_per_workgroup = 1
// workgroup_size = "threads_per_row"
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(rows, groups)"
// ///

// `groups` workgroups share a column's sum, and their partial sums are added at the end. A row may be as long as a
// buffer.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/gradient.wgsl" %}

{% include "lib/row_sums.wgsl" %}

{% include "lib/columns.wgsl" %}
