"""Mutants of the kernels of gated_norm and its gradient, and the cases that have to find them."""

from __future__ import annotations

from kernel_mutants import KernelMutant

ALL = ("naive", "registers", "streaming")
GRADIENTS = ("naive", "tiles", "registers")
ROW, GRADIENT = "lib/gated_norm_row.wgsl", "lib/gated_norm_gradient.wgsl"
FINISH = "lib/gated_norm_finish.wgsl"

CASES = (
    "rows-61",
    "groups-*",
    "cols-64",
    "heads-3",
    "bias-8",
    "order=gate_first-8",
    "norm=layer_norm-8",
    "wide-*",
    "closed-*",
)
MUTANTS = (
    KernelMutant("the other order", ROW, 'order == "norm_first"', 'order == "gate_first"', ALL),
    KernelMutant("z without its activation", ROW, '" * activated(z)" if', '" * z" if', ALL),
    KernelMutant("the gate left out", ROW, '" * activated(load_gate(row, j, thread))" if', '"" if', ALL),
    KernelMutant("the weight of the first head", ROW, "row % heads * COLS + c", "c", ALL),
    KernelMutant("weight left out", ROW, "if has_weight", "if false", ALL),
    KernelMutant("bias left out", ROW, "if has_bias", "if false", ALL),
    KernelMutant(
        "silu without its argument",
        "lib/activations.wgsl",
        "return x * logistic(x);",
        "return logistic(x);",
        ALL,
    ),
    KernelMutant(
        "a mean in RMSNorm",
        "gated_norm/naive.wgsl",
        "squares += h * h",
        "squares += (h - 0.1) * (h - 0.1)",
        ("naive",),
    ),
)

GRADIENT_CASES = (
    "many-*",
    "normal*",
    "bias-8",
    "layer-norm-*",
    "order=gate_first-8",
    "cols-61",
)
GRADIENT_MUTANTS = (
    KernelMutant("the other order", GRADIENT, 'order == "norm_first"', 'order == "gate_first"', GRADIENTS),
    KernelMutant("the gate left out of dx", GRADIENT, "_dx(i, d * activated(z))", "_dx(i, d)", GRADIENTS),
    KernelMutant("the slope left out of dz", GRADIENT, "dy * n * activation_slope(z)", "dy * n", GRADIENTS),
    KernelMutant(
        "dz without x", GRADIENT, "d * load{{ suffix }}_x(i) * activation", "d * activation", GRADIENTS
    ),
    KernelMutant(
        "dz without the bias", GRADIENT, "if has_bias }};\n    store", "if false }};\n    store", GRADIENTS
    ),
    KernelMutant("the weight of the first head", GRADIENT, 'row % heads * COLS + " ~', '" ~', GRADIENTS),
    KernelMutant("sums of another head", GRADIENT, "heads + block.owner) * COLS", "heads) * COLS", GRADIENTS),
)
