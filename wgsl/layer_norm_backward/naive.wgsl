// /// webnorm
// ops = ["layer_norm_backward", "rms_norm_backward"]
// summary = "One invocation per row for the row's sums, then one per column for dx and the sums over rows."
// differs = "Follows the formula directly; invocations share nothing."
// rung = 1
// layout = "gradient_by_rows_and_columns"
// [tune]
// workgroup_size = [32, 64, 128, 256]
// [default]
// workgroup_size = "32 if software else 64"
// [derive]
// vector_width = "4 if packed or software else 1"
// threads_per_row = 1
// rows_per_workgroup = "workgroup_size"
// column_threads = "workgroup_size"
// groups = 4
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(rows, groups)"
// ///

// Two passes over the same arrays: along the rows, where neighbouring invocations read memory a row apart, and down the
// columns, where they read neighbouring elements, but each adds up a quarter of all rows one by one.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/gradient.wgsl" %}

{% include "lib/row_sums.wgsl" %}

{% include "lib/columns.wgsl" %}
