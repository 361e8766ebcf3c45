"""Mutants of the kernels of softmax and its gradient, and the cases that have to find them."""

from __future__ import annotations

from kernel_mutants import KernelMutant

ALL = ("naive", "registers", "streaming")
FAST = ("registers", "streaming")
ROW, PARTS, CAUSAL = "lib/softmax_row.wgsl", "lib/softmax_parts.wgsl", "lib/causal.wgsl"
GRADIENT = "lib/softmax_gradient_row.wgsl"
NAIVE, REGISTERS, STREAMING = (f"softmax/{name}.wgsl" for name in ALL)

CASES = (
    "cols-61",
    "batch-64",
    "mask-8",
    "batch_mask-8",
    "log-8",
    "mean-1e4",
    "spike-vectors",
    "masked-*",
    "one-column-left",
    "maximum-in-the-last-columns",
    "hidden-*",
    "more-queries-*",
    "causal-*-64*",
    "causal-*-131*",
    "scale=*",
    "log-sd-30*",
    "long-*",
)
MUTANTS = (
    KernelMutant("scale left out", ROW, " * params.scale", "", ALL),
    KernelMutant(
        "mask scaled", ROW, "_mask(row % queries * COLS + e)", "_mask(row % queries * COLS + e) * 2.0", ALL
    ),
    KernelMutant("mask of the first query", ROW, "row % queries * COLS", "0u", ALL),
    KernelMutant("mask of another row", ROW, "row % queries * COLS", "(row + 1u) % queries * COLS", ALL),
    KernelMutant("mask subtracted", ROW, '" + load" ~ suffix ~ "_mask', '" - load" ~ suffix ~ "_mask', ALL),
    KernelMutant("mask per batch left out", ROW, "if has_batch_mask", "if false", ALL),
    KernelMutant(
        "mask per batch of the first", ROW, "_batch_mask(row * COLS", "_batch_mask(row % queries * COLS", ALL
    ),
    KernelMutant(
        "columns past the row as zeros", ROW, "Vec(LOWEST), j, thread)", "Vec(), j, thread)", ("registers",)
    ),
    KernelMutant(
        "lanes left out of the maximum", ROW, "max(max(v.x, v.y), max(v.z, v.w))", "max(v.x, v.y)", FAST
    ),
    KernelMutant(
        "one column more is seen", CAUSAL, "{{ cols + 1 - queries }}u", "{{ cols + 2 - queries }}u", ALL
    ),
    KernelMutant("one column less is seen", CAUSAL, "row % queries + 1u", "row % queries", ALL),
    KernelMutant("the other corner", CAUSAL, 'causal == "lower_right"', 'causal == "upper_left"', ALL),
    KernelMutant("queries of all batch elements", CAUSAL, "row % queries", "row", ALL),
    KernelMutant(
        "rows without a column see one",
        CAUSAL,
        "{{ cols + 1 }}u, queries)",
        "{{ cols + 1 }}u, queries + 1u)",
        ALL,
    ),
    KernelMutant("lanes of the mask alike", CAUSAL, "vec4(0u, 1u, 2u, 3u)", "vec4(0u)", FAST),
    KernelMutant("fully masked rows are NaN", ROW, "select(1.0 / sum, 0.0, sum == 0.0)", "1.0 / sum", ALL),
    KernelMutant("log of nothing", ROW, "select(log(sum), 0.0, sum == 0.0)", "log(sum)", ALL),
    KernelMutant("logarithm of base 2", ROW, '"log(sum)"', '"log2(sum)"', ALL),
    KernelMutant(
        "larger part scaled",
        PARTS,
        "select(fma(a.y, scale, b.y), fma(b.y, scale, a.y)",
        "select(fma(b.y, scale, a.y), fma(a.y, scale, b.y)",
        FAST,
    ),
    KernelMutant("parts not scaled", PARTS, "let scale = exp(-abs(a.x - b.x));", "let scale = 1.0;", FAST),
    KernelMutant("minimum of the parts", PARTS, "vec2(max(a.x, b.x)", "vec2(min(a.x, b.x)", FAST),
    KernelMutant("maximum of parts left out", PARTS, "vec2(max(a.x, b.x)", "vec2(a.x", FAST),
    KernelMutant("maximum not subtracted", NAIVE, "- largest", "- 0.0 * largest", ("naive",)),
    KernelMutant("maximum not below 0", NAIVE, "var largest = LOWEST", "var largest = 0.0", ("naive",)),
    KernelMutant("maximum not below -1e4", NAIVE, "var largest = LOWEST", "var largest = -1e4", ("naive",)),
    KernelMutant("powers of 2", NAIVE, "sum += exp(", "sum += exp2(", ("naive",)),
    KernelMutant(
        "first column left out",
        NAIVE,
        "var j = 0u; j < STEPS; j++) {\n        sum",
        "var j = 1u; j < STEPS; j++) {\n        sum",
        ("naive",),
    ),
    KernelMutant(
        "columns masked by -inf are NaN",
        REGISTERS,
        "max(greatest(most), LOWEST)",
        "greatest(most)",
        ("registers",),
    ),
    KernelMutant(
        "padded columns counted",
        REGISTERS,
        'where_live("exp(z" ~ j ~ " - largest)", "Vec()", j ~ "u")',
        '"exp(z" ~ j ~ " - largest)"',
        ("registers",),
    ),
    KernelMutant(
        "one term too few",
        REGISTERS,
        "{% for j in range(1, steps) %}\n    sum +=",
        "{% for j in range(2, steps) %}\n    sum +=",
        ("registers",),
    ),
    KernelMutant("own maximum not replaced", REGISTERS, "exp(largest - whole.x) * ", "", ("registers",)),
    KernelMutant(
        "workgroup count rounded down",
        REGISTERS,
        "ceil_div(batch * queries, rows_per_workgroup)",
        "max(1, batch * queries // rows_per_workgroup)",
        ("registers",),
    ),
    KernelMutant("rows of one query", STREAMING, '"batch * queries"', '"batch"', ("streaming",)),
    KernelMutant(
        "running sum not scaled",
        STREAMING,
        "sums = fma(sums, exp(most - greater), ",
        "sums = fma(sums, Vec(1.0), ",
        ("streaming",),
    ),
    KernelMutant("sums of lanes not scaled", STREAMING, "sums * exp(most - largest)", "sums", ("streaming",)),
    KernelMutant("maximum not moved on", STREAMING, "        most = greater;\n", "", ("streaming",)),
    KernelMutant(
        "not divided in long rows",
        STREAMING,
        '"exp(z - whole.x) * scale"',
        '"exp(z - whole.x)"',
        ("streaming",),
    ),
)
GRADIENT_CASES = (
    "cols-61",
    "batch-64",
    "log-8",
    "one-hot",
    "equal-dy",
    "causal-*",
    "scale=*",
    "*logarithms",
    "long-*",
)
GRADIENT_MUTANTS = (
    KernelMutant("scale left out", GRADIENT, "params.scale * ", "", ALL),
    KernelMutant("dy not weighted", GRADIENT, '"y * dy"', '"dy"', ALL),
    KernelMutant("sum left out", GRADIENT, "y * (dy - sum)", "y * dy", ALL),
    KernelMutant("sum added", GRADIENT, "(dy - sum)", "(dy + sum)", ALL),
    KernelMutant("y left out", GRADIENT, "y * (dy - sum)", "dy - sum", ALL),
    KernelMutant("y for exp(y)", GRADIENT, "exp(y)", "y", ALL),
    KernelMutant("sum of y in place of dy", GRADIENT, '"dy" if log', '"y" if log', ALL),
    KernelMutant("hidden columns count", GRADIENT, '{{ visible("value") }}', "value", ALL),
    KernelMutant("hidden columns have gradients", GRADIENT, '{{ visible("gradient") }}', "gradient", ALL),
    KernelMutant(
        "padded columns counted",
        GRADIENT,
        'return where_live({{ visible("value") }}, Vec(), j, thread);',
        'return {{ visible("value") }};',
        ("registers",),
    ),
    KernelMutant(
        "first column left out",
        "softmax_backward/naive.wgsl",
        "var j = 0u; j < STEPS; j++) {\n        sum",
        "var j = 1u; j < STEPS; j++) {\n        sum",
        ("naive",),
    ),
    KernelMutant(
        "sum off by 1e-5", "softmax_backward/naive.wgsl", "var sum = 0.0;", "var sum = 1e-5;", ("naive",)
    ),
    KernelMutant(
        "one term too few",
        "softmax_backward/registers.wgsl",
        "{% for j in range(1, steps) %}",
        "{% for j in range(2, steps) %}",
        ("registers",),
    ),
    KernelMutant(
        "sum of an invocation alone",
        "softmax_backward/registers.wgsl",
        'sum_row({{ total("own") }}, place, lane, subgroup_size)',
        '{{ total("own") }}',
        ("registers",),
    ),
    KernelMutant(
        "products overwritten",
        "softmax_backward/streaming.wgsl",
        "own += summand",
        "own = summand",
        ("streaming",),
    ),
    KernelMutant(
        "rows of one query", "softmax_backward/streaming.wgsl", '"batch * queries"', '"batch"', ("streaming",)
    ),
)
