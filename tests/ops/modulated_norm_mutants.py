"""Mutants of the kernels of modulated_norm and its gradient, and the cases that have to find them."""

from __future__ import annotations

from kernel_mutants import KernelMutant

ALL, FAST = ("naive", "registers", "streaming"), ("registers", "streaming")
GRADIENTS, SWEEPS = ("naive", "tiles", "registers"), ("naive", "tiles")
ROW, GRADIENT = "lib/modulated_norm_row.wgsl", "lib/modulated_norm_gradient.wgsl"
FINISH, PASSES = "lib/modulated_norm_finish.wgsl", "lib/op_gradient.wgsl"

CASES = (
    "rows-61",
    "each-batch-element",
    "small-scales",
    "cols-64",
    "weight-8",
    "bias-8",
    "activation=silu-8",
    "residual-8",
    "gated-residual-*",
    "norm=rms_norm-8",
    "mean-1e+06-sd",
    "constant*",
    "sd-1e-3",
    "eps=*",
)
MUTANTS = (
    KernelMutant("scale without 1 +", ROW, "(1.0 + load", "(load", ALL),
    KernelMutant("scale of another batch element", ROW, "row / rows * COLS", "row * COLS", ALL),
    KernelMutant("scale of the first batch element", ROW, "row / rows * COLS + c", "c", ALL),
    KernelMutant("shift left out", ROW, "if has_shift", "if false", ALL),
    KernelMutant(
        "shift subtracted", ROW, '" + load" ~ suffix ~ "_shift', '" - load" ~ suffix ~ "_shift', ALL
    ),
    KernelMutant("weight left out", ROW, "if has_weight", "if false", ALL),
    KernelMutant("bias left out", ROW, "if has_bias", "if false", ALL),
    KernelMutant("gate left out", ROW, "if has_gate", "if false", ALL),
    KernelMutant("residual subtracted", ROW, "_x(i) + added", "_x(i) - added", ALL),
    KernelMutant("activation left out", ROW, '"activated(u)" if activation else "u"', '"u"', ALL),
    KernelMutant(
        "h without the residual", ROW, "_h(row * COLS + c, h)", "_h(row * COLS + c, normalized)", ALL
    ),
    KernelMutant("a rounded mean", "modulated_norm/naive.wgsl", "(h - mean - low)", "(h - mean)", ("naive",)),
    KernelMutant("eps left out", "modulated_norm/naive.wgsl", " + params.eps", "", ("naive",)),
    KernelMutant(
        "a variance without its correction", "modulated_norm/naive.wgsl", " - low * low", "", ("naive",)
    ),
)

GRADIENT_CASES = ("many-*", "all*", "normal*", "cols-61", "norm=rms_norm-8", "eps=*")
GRADIENT_MUTANTS = (
    KernelMutant("scale without 1 +", GRADIENT, "(1.0 + load", "(load", GRADIENTS),
    KernelMutant("scale of another batch element", GRADIENT, "row / rows * COLS + c", "c", GRADIENTS),
    KernelMutant("slope left out", GRADIENT, "dy * activation_slope(u)", "dy", GRADIENTS),
    KernelMutant(
        "slope without the shift",
        GRADIENT,
        "if has_shift }};\n    return dy",
        "if false }};\n    return dy",
        GRADIENTS,
    ),
    KernelMutant("dh left out", GRADIENT, "if has_dh", "if false", GRADIENTS),
    KernelMutant(
        "sums of the first block",
        FINISH,
        "SUMS * COLS, BLOCKS, invocation",
        "SUMS * COLS, 1u, invocation",
        GRADIENTS,
    ),
    KernelMutant(
        "dscale without the bias", FINISH, '" + along_up * bias" if has_bias', '"" if has_bias', GRADIENTS
    ),
    KernelMutant("dscale without the weight", FINISH, "along_xhat * weight", "along_xhat", GRADIENTS),
    KernelMutant(
        "dweight without the scale",
        FINISH,
        "dweight += scale * along_xhat",
        "dweight += along_xhat",
        GRADIENTS,
    ),
    KernelMutant("dbias of the first batch elements", FINISH, "dbias += scale", "dbias = scale", GRADIENTS),
    KernelMutant("dresidual without the gate", FINISH, "dx * gate", "dx", GRADIENTS),
    KernelMutant(
        "dgate of x",
        FINISH,
        "sum += dx * load{{ suffix }}_residual",
        "sum += dx * load{{ suffix }}_x",
        GRADIENTS,
    ),
    KernelMutant(
        "a share left out", PASSES, "k < {{ finish_shares }}u", "k < {{ finish_shares - 1 }}u", GRADIENTS
    ),
    KernelMutant(
        "shares of half the records",
        PASSES,
        "k += {{ finish_shares }}u",
        "k += {{ 2 * finish_shares }}u",
        GRADIENTS,
    ),
    KernelMutant(
        "mean of g left out of registers",
        PASSES,
        '" - means.y" if has_mean',
        '"" if has_mean',
        ("registers",),
    ),
    KernelMutant("mean of g left out of sweeps", PASSES, '" - mean_g" if has_mean', '"" if has_mean', SWEEPS),
    KernelMutant(
        "xhat left out", PASSES, "along += g{{ j }} * xhat{{ j }}", "along += g{{ j }}", ("registers",)
    ),
    KernelMutant(
        "the first row of a block alone",
        PASSES,
        "{{ name }}0 += {{ term }}",
        "{{ name }}0 = {{ term }}",
        SWEEPS,
    ),
)
