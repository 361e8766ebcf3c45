// /// webnorm
// ops = ["layer_norm_backward", "rms_norm_backward"]
// summary = "One dispatch: some workgroups compute dx of the rows, others walk down columns for the sums."
// differs = "For few elements and saved statistics: a second dispatch would cost more than reading x and dy twice."
// rung = 5
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [8, 16, 32, 64, 128, 256]
// rows_per_workgroup = [1, 2, 4, 8]
// column_chunks = [1, 2, 4, 8, 16]
// batch = [2, 4, 8]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software", [["cols <= 256", 8], ["cols <= 1024", 32], ["cols <= 2048", 64], 256]],
//     ["cols <= 512", 32], ["cols <= 4096", 128], 256,
// ]
// rows_per_workgroup = [["software or threads_per_row > 128", 1], ["max_invocations >= 512", 4], 2]
// column_chunks = 4
// batch = 4
// subgroups = "has_subgroups"
// [derive]
// vector_width = 4
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "ceil_div(cols, threads_per_row * 4)"
// scalars = "4 * steps"
// sums = "has_weight + has_bias"
// down = "workgroup_size // column_chunks"
// column_tiles = "ceil_div(cols, 4 * column_chunks) * (sums > 0)"
// workgroup_bytes = "16 * sums * workgroup_size + 8 * (1 + capped) * workgroup_size // (4 if subgroups else 1)"
// [[require]]
// rule = "saved_stats"
// why = "the sums over rows need each row's statistics from the forward pass: saved_stats must be set"
// [[require]]
// rule = "not has_residual_bias"
// why = "dresidual_bias is a sum of dx, which other workgroups of the same dispatch compute"
// [[require]]
// rule = "cols % 4 == 0"
// why = "sums over rows take four columns at a time, so cols must be a multiple of 4"
// [[require]]
// rule = "rows * cols <= 8388608"
// why = "above 8388608 elements caches do not serve the second read, and too few workgroups walk down columns"
// [[require]]
// rule = "workgroup_size <= 1024"
// why = "threads_per_row * rows_per_workgroup exceeds 1024 invocations per workgroup"
// [[require]]
// rule = "column_chunks <= workgroup_size"
// why = "a tile is wider than its workgroup"
// [[require]]
// rule = "scalars <= 32"
// why = "x and dy of more than 32 columns per invocation do not fit registers"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(column_tiles + ceil_div(rows, rows_per_workgroup), max_workgroups)"
// per = "call"
// iterations = "ceil_div(column_tiles + ceil_div(rows, rows_per_workgroup), max_workgroups) * (4 + 3 * (threads_per_row // 16)) + ceil_div(column_tiles, max_workgroups) * ceil_div(rows, down * batch)"
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(rows, down)"
// ///

// Two workgroups read each element at about the same time, so the second read comes from the cache. If the data exceed
// the cache, two dispatches that read once are faster.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/one_dispatch.wgsl" %}
