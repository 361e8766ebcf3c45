// /// webnorm
// ops = ["layer_norm_backward", "rms_norm_backward"]
// summary = "Workgroups walk over rows and keep partial sums, and usually the weight, in registers. They read x and dy once, or again from cache."
// differs = "One dispatch over the rows (tiles needs two), with one record of partial sums per workgroup."
// rung = 3
// layout = "gradient_in_registers"
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
// subgroups = "has_subgroups"
// [derive]
// loops_rows = 1
// workgroup_size = "threads_per_row * rows_per_workgroup"
// early_sums = "has_mean and is_float16 and weight_itemsize == 2 and not saved_stats and not reread"
// added_bytes = "(rows_per_workgroup > 1) * 16 * sums * ceil_div(cols, 4)"
// parked_bytes = "4 * workgroup_size * (parked_weight * weight_itemsize * steps + itemsize * parked)"
// moment_bytes = "(16 if saved_stats else (48 if early_sums else 40)) if has_mean else (8 if saved_stats else 16)"
// workgroup_bytes = "added_bytes + parked_bytes + moment_bytes * workgroup_size // (4 if subgroups else 1)"
// [[require]]
// rule = "vector_width > 1 or not packed"
// why = "types narrower than a word need vector_width 4, because they are read four at a time"
// [[require]]
// rule = "vector_width < 8 or (itemsize == 2 and cols % 8 == 0)"
// why = "vector_width 8 needs float16 or bfloat16 (16 bytes per access) and a multiple of eight columns"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "threads_per_row that is not a power of two needs subgroups and one row per workgroup"
// [[require]]
// rule = "workgroup_size <= 1024"
// why = "threads_per_row * rows_per_workgroup exceeds 1024 invocations per workgroup"
// [[require]]
// rule = "scalars <= 32"
// why = "x, dy, weight and the sums of more than 32 columns per invocation do not fit registers"
// [[require]]
// rule = "rows_per_workgroup == 1 or (span == cols and vector_width > 1)"
// why = "rows_per_workgroup above 1 needs vectors, and rows that start at multiples of four columns"
// [[require]]
// rule = "not words or (itemsize == 2 and not reread)"
// why = "words needs float16 or bfloat16, and excludes reread"
// [[require]]
// rule = "parked == 0 or (parked <= steps and vector_width >= 4 and (vector_width == 4 or parked % 2 == 0) and not words and not reread and not prefetch)"
// why = "parked is at most the number of an invocation's Vecs, needs vector_width 4 or 8, and excludes words, reread and prefetch"
// [[require]]
// rule = "not parked_weight or (has_weight and span == cols and vector_width >= 4)"
// why = "parked_weight needs a weight, vectors, and rows that start at multiples of four columns"
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

// The number of workgroups is chosen to fill the adapter, not the problem. Each keeps a record of sums in registers
// while it walks over its rows. Fewer records leave less work for the last pass.
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/gradient.wgsl" %}

{% include "lib/gradient_registers.wgsl" %}
