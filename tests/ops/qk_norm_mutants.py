"""Mutants of the kernels of qk_norm and its gradient, and the cases that have to find them."""

from __future__ import annotations

from kernel_mutants import KernelMutant

ALL, FAST, SLOW = ("naive", "registers"), ("registers",), ("naive",)
ROW, ACCESS = "lib/qk_norm_row.wgsl", "lib/qk_norm_access.wgsl"
NAIVE, REGISTERS = (f"qk_norm/{name}.wgsl" for name in ALL)
BACK_NAIVE, BACK_REGISTERS = (f"qk_norm_backward/{name}.wgsl" for name in ALL)

CASES = (
    "dim-61",
    "tokens-64",
    "no-key-3",
    "qkv-3",
    "no-weight-3",
    "bias-3",
    "weight_per_head-3",
    "norm=*-3",
    "layout=*-3",
    "weight_offset=*",
    "eps=*",
    "mean-1e+06-*",
    "constant-heads",
    "gaps-of-*",
    "split-of-*",
)
SHARED = (
    KernelMutant("the keys of the queries", ACCESS, '"q" if qkv else kind', '"q"', ALL),
    KernelMutant("queries as keys", ROW, "row >= queries", "row > queries", ALL),
    KernelMutant(
        "gaps ignored", ROW, "select(token * {{ q_stride }}u,", "select(token * q_heads * dim,", ALL
    ),
    KernelMutant("keys at the begin of a row", ROW, '"u + q_heads * dim" if qkv', '"u" if qkv', ALL),
    KernelMutant("the other layout", ROW, 'layout == "heads_first"', 'layout == "tokens_first"', ALL),
    KernelMutant("token of the batch", ROW, "+ token % tokens", "+ token", ALL),
    KernelMutant("one weight for all heads", ROW, '"head.number * dim" if weight', '"0u" if weight', ALL),
    KernelMutant("one weight for both", ACCESS, "_{{ name }}_{{ kind }}", "_{{ name }}_q", ALL),
    KernelMutant("weight_offset left out", ACCESS, " + params.weight_offset", "", ALL),
    KernelMutant("sum for mean", "lib/op_row.wgsl", "is_l2 is defined and is_l2", "is_l2 is defined", ALL),
    KernelMutant(
        "mean for sum", "lib/op_row.wgsl", "is_l2 is defined and is_l2", "is_l2 is not defined", ALL
    ),
)
MUTANTS = (
    *SHARED,
    KernelMutant("eps left out", NAIVE, " + params.eps", "", SLOW),
    KernelMutant("mean rounded once", NAIVE, '" - mean - low"', '" - mean"', SLOW),
    KernelMutant("first element left out", NAIVE, "j = 0u; j < STEPS && ", "j = 1u; j < STEPS && ", SLOW),
    KernelMutant(
        "bias left out", NAIVE, '"bias", kind, "j") if bias', '"bias", kind, "j") if dim == 0', SLOW
    ),
    KernelMutant(
        "bias left out", REGISTERS, '"bias", kind, j) if bias', '"bias", kind, j) if dim == 0', FAST
    ),
    KernelMutant(
        "weight of the first step",
        REGISTERS,
        'name ~ j if early_parameters else load_parameter(name, kind, "i" ~ j)',
        'name ~ "0" if early_parameters else load_parameter(name, kind, "i0")',
        FAST,
    ),
    KernelMutant(
        "one step too few",
        REGISTERS,
        "range(steps) %}\n        if (live",
        "range(1) %}\n        if (live",
        FAST,
    ),
    KernelMutant("elements past a head", REGISTERS, "where_live(h{{ j }}, Vec()", "(h{{ j }}", FAST),
    KernelMutant(
        "workgroup count rounded down",
        REGISTERS,
        "ceil_div(batch * tokens * heads, rows_per_workgroup)",
        "max(1, batch * tokens * heads // rows_per_workgroup)",
        FAST,
    ),
)

GRADIENT_CASES = (
    "dim-61",
    "tokens-257",
    "no-key-3",
    "qkv-3",
    "no-weight-3",
    "bias-mean-100-vectors",
    "weight_per_head-3",
    "norm=*-3",
    "layout=*-3",
    "weight_offset=*",
    "eps=*",
    "a-weight-per-head",
    "gaps-of-*",
    "split-of-*",
)
GRADIENT_MUTANTS = (
    *SHARED,
    KernelMutant(
        "dx in the layout of dy", ROW, '", (token * heads + number) * dim"', '", output * dim"', ALL
    ),
    KernelMutant("mean of g left out", BACK_NAIVE, " - across)", ")", SLOW),
    KernelMutant("mean of g left out", BACK_REGISTERS, "means.x - means.y", "means.x", FAST),
    KernelMutant("mean of g * xhat left out", BACK_NAIVE, " - xhat * along", "", SLOW),
    KernelMutant("root left out", BACK_NAIVE, "- across) * rstd", "- across)", SLOW),
    KernelMutant("root left out", BACK_REGISTERS, '"mean_gx" }}) * rstd', '"mean_gx" }})', FAST),
    KernelMutant("weight left out of g", BACK_REGISTERS, '" * weight" ~ j if weight', '"" if weight', FAST),
    KernelMutant("sums of xhat", BACK_NAIVE, "dweight += dy * xhat", "dweight += xhat", SLOW),
    KernelMutant("sums of the first head", BACK_NAIVE, "number < {{ kind }}_heads", "number <= first", SLOW),
    KernelMutant("rows past the last counted", BACK_REGISTERS, ", row_exists);", ", true);", FAST),
    KernelMutant("sums of the first head", BACK_REGISTERS, "first + i % count", "first", FAST),
    KernelMutant("rows of a workgroup not added", BACK_REGISTERS, "0.0, turn_of == 0u)", "0.0, true)", FAST),
    KernelMutant("no tree", BACK_REGISTERS, "if 2 ** power < finish_records", "if 2 ** power < 1", FAST),
    KernelMutant("sums of keys for queries", BACK_REGISTERS, "u && !is_key", "u && is_key", FAST),
)
