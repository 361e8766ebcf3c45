// /// webnorm
// ops = ["layer_norm_backward", "rms_norm_backward"]
// summary = "Workgroups walk over rows with partial sums, and mostly the weight, in registers: x and dy are read once, or again from cache."
// differs = "One dispatch over the rows where tiles makes two; as many partial records as there are workgroups."
// rung = 3
// layout = "sums_over_rows"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
// rows_per_workgroup = [1, 2, 4, 8]
// vector_width = [4, 8, 1]
// prefetch = [false, true]
// reread = [false, true]
// parked_weight = [false, true]
// words = [false, true]
// parked = [0, 2, 4, 5]
// groups = [4, 64, 132, 264, 396, 528, 1056]
// subgroups = [true, false]
// [default]
// threads_per_row = "(8 if span <= 256 else (32 if span <= 1024 else (64 if span <= 2048 else (128 if span <= 4096 else 512)))) if software else (32 if span <= 256 else (64 if span <= 1024 else (128 if span <= 4096 else (256 if span <= 8192 else min(512 if span <= 16384 else 1024, max_invocations)))))"
// rows_per_workgroup = "1 if software or span > cols or cols > 1024 else (8 if cols <= 256 else (4 if has_subgroups or cols <= 512 else (2 if (has_weight + has_bias + has_residual_bias) * cols <= 2816 else 1)))"
// groups = "(4 if rows <= 1024 else (64 if rows <= 32768 else 1056)) if software else (132 if cols > 4096 else (264 if cols > 1024 or span == cols else 1056))"
// subgroups = "has_subgroups"
// [derive]
// loops_rows = 1
// workgroup_size = "threads_per_row * rows_per_workgroup"
// steps = "2 * ceil_div(cols, threads_per_row * 8) if vector_width == 8 else ceil_div(span if vector_width == 4 else cols, threads_per_row * vector_width)"
// scalars = "steps * min(vector_width, 4)"
// early_sums = "has_mean and is_float16 and weight_itemsize == 2 and not saved_stats and not reread"
// workgroup_bytes = "(rows_per_workgroup > 1) * 16 * sums * ceil_div(cols, 4) + parked_weight * 4 * weight_itemsize * steps * workgroup_size + 4 * itemsize * parked * workgroup_size + ((16 if saved_stats else (48 if early_sums else 40)) if has_mean else (8 if saved_stats else 16)) * workgroup_size // (4 if subgroups else 1)"
// [[require]]
// rule = "vector_width > 1 or not packed"
// why = "types narrower than a word are read four at a time: vector_width 4"
// [[require]]
// rule = "vector_width < 8 or (itemsize == 2 and cols % 8 == 0)"
// why = "eight columns at a time are 16 bytes of float16 or bfloat16, in rows of a multiple of eight columns"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "a number of invocations that is no power of two needs subgroups, and a workgroup to itself"
// [[require]]
// rule = "workgroup_size <= 1024"
// why = "threads_per_row * rows_per_workgroup is over the invocations of a workgroup"
// [[require]]
// rule = "scalars <= 32"
// why = "x, dy, weight and the sums of more than 32 columns per invocation do not stay in registers"
// [[require]]
// rule = "rows_per_workgroup == 1 or (span == cols and vector_width > 1)"
// why = "rows are added up in fours of columns, which all of them have to start on: rows_per_workgroup 1"
// [[require]]
// rule = "not words or (itemsize == 2 and not reread)"
// why = "words hold two columns of float16 or bfloat16, and are what would be read again"
// [[require]]
// rule = "parked == 0 or (parked <= steps and vector_width >= 4 and (vector_width == 4 or parked % 2 == 0) and not words and not reread and not prefetch)"
// why = "parked counts Vecs of four columns of x, which are neither kept in words nor read again nor fetched ahead"
// [[require]]
// rule = "not parked_weight or (has_weight and span == cols and vector_width >= 4)"
// why = "the weight is parked in fours of columns, which rows have to start on"
// [[scratch]]
// name = "partials"
// records = "4 * ceil_div(min(groups, ceil_div(rows, rows_per_workgroup)), 4)"
// words = "max(4 * ceil_div(cols, 4) * sums, 4)"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "min(4 * ceil_div(min(groups, ceil_div(rows, rows_per_workgroup)), 4), max_workgroups)"
// iterations = "ceil_div(rows, rows_per_workgroup * min(groups, max_workgroups)) * (4 + 3 * (threads_per_row // 16))"
// bindings = ["x", "dy", "weight", "stats", "dh", "dx", "partials"]
// [accuracy]
// serial_terms = "steps"
// column_terms = "ceil_div(rows, rows_per_workgroup * groups)"
// ///

// The number of workgroups is chosen to fill the adapter, not the problem: each keeps a record of sums in
// registers while it walks over its rows, and the fewer records there are, the less there is to finish.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/gradient.wgsl" %}

{% include "lib/gradient_registers.wgsl" %}
