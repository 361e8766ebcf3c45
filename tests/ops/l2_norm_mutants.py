"""Mutants of the kernels of l2_norm and its gradient, and the cases that have to find them."""

from __future__ import annotations

from kernel_mutants import KernelMutant

ALL = ("naive", "registers", "streaming")
FAST = ("registers", "streaming")
NORM, ROWS, GRADIENT = "lib/row_norm.wgsl", "lib/plain_rows.wgsl", "lib/l2_gradient.wgsl"
NAIVE, REGISTERS, STREAMING = (f"l2_norm/{name}.wgsl" for name in ALL)
BACK_NAIVE, BACK_REGISTERS, BACK_STREAMING = (f"l2_norm_backward/{name}.wgsl" for name in ALL)
CASES = (
    "cols-61",
    "rows-64",
    "p=1-8",
    "eps_mode=*-8",
    "eps=*",
    "square-beyond*",
    "sum-beyond*",
    "large-*",
    "small-*",
    "smallest-*",
    "squares-below-*",
    "scales-*",
    "zeros-*",
    "norm-*",
    "long-*",
)
MUTANTS = (
    KernelMutant("sum of x", NORM, '"abs(h)" if', '"h" if', ALL),
    KernelMutant("absolute values for squares", NORM, 'else "h * h"', 'else "abs(h)"', ALL),
    KernelMutant("no smaller scale", NORM, "sum = sums.y;", "", ALL),
    KernelMutant("no larger scale", NORM, "sum = sums.z;", "", ALL),
    KernelMutant("the larger scale too late", NORM, "size < {{ 0.5 ** 70 }}", "size < {{ 0.5 ** 125 }}", ALL),
    KernelMutant("a scale of 2^-60", NORM, "0.5 ** 80", "0.5 ** 60", ALL),
    KernelMutant("a scale of 2^50", NORM, "2.0 ** 96", "2.0 ** 50", ALL),
    KernelMutant("scale of the row left out", NORM, '" * norm.factor" if scaled', '"" if scaled', ALL),
    KernelMutant(
        "eps of another scale", NORM, "let least = params.eps * norm.factor", "let least = params.eps", ALL
    ),
    KernelMutant(
        "eps does not choose the scale", NORM, '"add": "sums.x + params.eps"', '"add": "sums.x"', ALL
    ),
    KernelMutant("no clamp", NORM, "select(root, least, norm.constant)", "root", ALL),
    KernelMutant(
        "clamped from above", NORM, "norm.constant = root < least", "norm.constant = root > least", ALL
    ),
    KernelMutant("clamped square", NORM, "let least = params.eps *", "let least = sqrt(params.eps) *", ALL),
    KernelMutant("eps left out", NORM, "sum += params.eps *", "sum += 0.0 *", ALL),
    KernelMutant("rows of zeros are NaN", NORM, "select(1.0 / root, 0.0, root == 0.0)", "1.0 / root", ALL),
    KernelMutant("no root", NORM, 'else "sqrt(sum)"', 'else "sum"', ALL),
    KernelMutant("root of the sum of absolute values", NORM, '"sum" if p', '"sqrt(sum)" if p', ALL),
    KernelMutant(
        "padded columns counted", ROWS, ", Vec(), j, thread)", ", Vec(1.0), j, thread)", ("registers",)
    ),
    KernelMutant(
        "first column left out",
        NAIVE,
        "var j = 0u; j < STEPS; j++) {\n        let x = load_row_x(row, j, thread);\n{{ add",
        "var j = 1u; j < STEPS; j++) {\n        let x = load_row_x(row, j, thread);\n{{ add",
        ("naive",),
    ),
    KernelMutant("first column twice", REGISTERS, 'add_terms("x" ~ j)', 'add_terms("x0")', ("registers",)),
    KernelMutant(
        "sum of an invocation alone",
        REGISTERS,
        "sum_terms({{ own_sums() }}, place, lane, subgroup_size)",
        "{{ own_sums() }}",
        ("registers",),
    ),
    KernelMutant(
        "sum of an invocation alone",
        STREAMING,
        "sum_terms({{ own_sums() }}, place, lane, subgroup_size)",
        "{{ own_sums() }}",
        ("streaming",),
    ),
    KernelMutant(
        "workgroup count rounded down",
        REGISTERS,
        "ceil_div(rows, rows_per_workgroup)",
        "max(1, rows // rows_per_workgroup)",
        ("registers",),
    ),
)
GRADIENT_CASES = (
    "cols-61",
    "rows-64",
    "p=1-8",
    "eps_mode=*-8",
    "square-*",
    "scales-*",
    "zeros-*",
    "norm-*",
    "long-*",
)
GRADIENT_MUTANTS = (
    KernelMutant("sum left out", GRADIENT, "dy - direction * along", "dy", ALL),
    KernelMutant("sum added", GRADIENT, "dy - direction * along", "dy + direction * along", ALL),
    KernelMutant(
        "direction of the other norm", GRADIENT, '"sign(x)" if p == "1"', '"sign(x)" if p == "2"', ALL
    ),
    KernelMutant("direction not divided", GRADIENT, 'else divided("x")', 'else "x"', ALL),
    KernelMutant("a norm below eps is free", GRADIENT, "select(free, dy, norm.constant)", "free", ALL),
    KernelMutant(
        "not divided",
        GRADIENT,
        'return {{ divided("select(free, dy, norm.constant)" if eps_mode == "clamp" else "free") }};',
        "return free;",
        ALL,
    ),
    KernelMutant(
        "first column left out",
        BACK_NAIVE,
        "along += load_row_dy(row, j, thread)",
        "along += select(load_row_dy(row, j, thread), 0.0, j == 0u)",
        ("naive",),
    ),
    KernelMutant(
        "dy not weighted",
        BACK_NAIVE,
        'load_row_dy(row, j, thread) * ({{ divided("x") }})',
        "load_row_dy(row, j, thread)",
        ("naive",),
    ),
    KernelMutant(
        "one product too few",
        BACK_REGISTERS,
        "{% for j in range(1, steps) %}",
        "{% for j in range(2, steps) %}",
        ("registers",),
    ),
    KernelMutant("products overwritten", BACK_STREAMING, "products += ", "products = ", ("streaming",)),
    KernelMutant("products not divided", BACK_STREAMING, '({{ divided("x") }});', "x;", ("streaming",)),
)
