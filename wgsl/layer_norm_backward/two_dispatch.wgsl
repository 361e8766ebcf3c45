// /// webnorm
// ops = ["layer_norm_backward", "rms_norm_backward"]
// summary = "Workgroups walk down columns for the sums over rows, and store partial sums of each row; a second dispatch computes dx."
// differs = "For few long rows and saved statistics: split_row takes four dependent dispatches, and this kernel two. Reads x and dy twice, the second time mostly from cache."
// rung = 6
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256]
// rows_per_workgroup = [1, 2, 4, 8, 16, 32]
// batch = [1, 2, 4]
// block_steps = [1, 2, 4, 8]
// subgroups = [true, false]
// [default]
// threads_per_row = "8 if software else 32"
// rows_per_workgroup = "4 if software else min(8, max_invocations // 32)"
// batch = "1 if rows <= 8 else 2"
// block_steps = "8 if software else 2"
// subgroups = "has_subgroups"
// [derive]
// vector_width = 4
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = 1
// loops_rows = 1
// sums = "has_weight + has_bias"
// column_tiles = "ceil_div(cols, 4 * threads_per_row)"
// row_blocks = "ceil_div(cols, 4 * workgroup_size * block_steps)"
// row_terms = "2 if has_mean else 1"
// tree = "workgroup_size // (4 if subgroups else 1)"
// workgroup_bytes = "max(16 * sums * workgroup_size + 8 * row_terms * batch * tree, 4 * row_terms * (rows_per_workgroup + 2 * tree))"
// [[require]]
// rule = "saved_stats"
// why = "the sums over rows need each row's statistics from the forward pass: saved_stats must be set"
// [[require]]
// rule = "not has_residual_bias"
// why = "dresidual_bias is a sum of dx, which the second dispatch computes"
// [[require]]
// rule = "cols % 4 == 0"
// why = "sums over rows take four columns at a time, so cols must be a multiple of 4"
// [[require]]
// rule = "rows * cols <= 16777216"
// why = "above 16777216 elements caches do not serve the second read, and too few workgroups walk down columns"
// [[require]]
// rule = "workgroup_size <= 1024"
// why = "threads_per_row * rows_per_workgroup exceeds 1024 invocations per workgroup"
// [[require]]
// rule = "batch * row_terms <= 4"
// why = "the sums of a batch of rows have to fit one vec4, and a row of layer_norm_backward has two sums"
// [[scratch]]
// name = "parts"
// words = "row_terms * column_tiles"
// [[pass]]
// entry_point = "down_columns"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(column_tiles, max_workgroups)"
// per = "call"
// iterations = "ceil_div(column_tiles, max_workgroups) * (4 + ceil_div(rows, rows_per_workgroup * batch) * (1 + 3 * (threads_per_row // 16)))"
// bindings = ["x", "dy", "weight", "stats", "parts", "dweight", "dbias"]
// [[pass]]
// entry_point = "along_rows"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(rows * row_blocks, max_workgroups)"
// per = "call"
// iterations = "ceil_div(rows * row_blocks, max_workgroups) * (4 + ceil_div(column_tiles, workgroup_size) + rows_per_workgroup + 3 * (threads_per_row // 16))"
// bindings = ["x", "dy", "weight", "dh", "stats", "parts", "dx"]
// [accuracy]
// serial_terms = "ceil_div(column_tiles, workgroup_size) + rows_per_workgroup"
// column_terms = "ceil_div(rows, rows_per_workgroup)"
// ///

// With given statistics, one reading gives a column's sums over rows and a row's sums over columns. A workgroup that
// walks down a tile of columns finishes the former and stores its share of the latter.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/two_dispatch.wgsl" %}
