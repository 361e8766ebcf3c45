"""The corpus of `check`: inputs that broke other implementations, edge cases and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from webnorm.op.corpus import ForceSplit
from webnorm.op.dtypes import FP8, STORAGE, Array
from webnorm.op.op import Op
from webnorm.op.registry import OPS
from webnorm.ops.norms.case import (
    BOTH,
    LARGE,
    OPTION_CASES,
    Draw,
    NormCase,
    adjacent_floats,
    consecutive,
    constant,
    normal,
    of_normal,
    outlier,
    outlier_first,
    row_scales,
    with_bad_values,
)
from webnorm.ops.norms.problem import SCALE_BLOCKS, NormOptions

_CUT: tuple[tuple[ForceSplit, tuple[int, ...], str], ...] = (
    ("bindings", (61, 256), "rows cut where a device's bindings are small, which this one's are not"),
    ("dispatches", (70,), "dispatches in two dimensions, which this device requires for more rows"),
)
_SHIFT = "mean of {} standard deviations: the rounding of the mean (webnorm docs/numerics.md)"


CASES: tuple[NormCase, ...] = (
    of_normal("normal", "the benign input that hides bad kernels", (7, 768), options=BOTH),
    *(
        of_normal(
            f"cols-{cols}",
            "lengths at and around vector, subgroup and workgroup sizes",
            (5, cols),
            mean=3.0,
            options=BOTH,
        )
        for cols in (1, 2, 3, 5, 64, 199, 1023, 1024, 4095)
    ),
    *(
        of_normal(f"cols-{cols}", "columns of models", (3, cols), mean=1.0, options=BOTH)
        for cols in (4096, 5120, 8192, 16384, 32768)
    ),
    of_normal("rows-0", "no rows", (0, 16), options=BOTH),
    of_normal("rows-1", "a single row", (1, 96), options=BOTH),
    of_normal("rows-65537", "more rows than a dispatch has workgroups in one dimension", (65537, 3)),
    of_normal(
        "cols-65537", "Mesa's llvmpipe ends a shader's loops after 65535 iterations", (2, 65537), mean=50.0
    ),
    of_normal("weight-only", "bias absent", (6, 100), options=NormOptions(bias=False)),
    of_normal(
        "bias-only",
        "onnxruntime #28424: bias read from the wrong slot",
        (6, 100),
        options=NormOptions(weight=False),
    ),
    of_normal("shift-1e2", _SHIFT.format("1e2"), (4, 4096), mean=1e2),
    of_normal("shift-1e4", _SHIFT.format("1e4"), (4, 4096), mean=1e4, breaks_one_pass=True),
    of_normal("shift-1e6", _SHIFT.format("1e6"), (4, 4096), mean=1e6, breaks_one_pass=True),
    NormCase(
        "onnxruntime-28463",
        "onnxruntime #28463: rows 40000..40003 gave NaN",
        consecutive(40000, 4),
        (2, 4),
        breaks_one_pass=True,
    ),
    NormCase("onnxruntime-21935", "onnxruntime #21935: constant 1234 gave NaN", constant(1234.0), (3, 512)),
    of_normal(
        "onnxruntime-31626",
        "onnxruntime #31626: float16 squares that overflow, 300 ± 100",
        (4, 512),
        100.0,
        300.0,
    ),
    NormCase(
        "tvm-19592", "TVM #19592: rows 80000..80003", consecutive(80000, 4), (2, 4), breaks_one_pass=True
    ),
    of_normal(
        "mlx-2238", "MLX #2238: about 1449 ± 0.5 gave NaN", (4, 1024), 0.5, 1449.0, breaks_one_pass=True
    ),
    of_normal("burn-5607", "burn #5607: mean 100, error 1.03", (4, 768), 0.01, 100.0, breaks_one_pass=True),
    of_normal(
        "pytorch-51102", "pytorch #51102: randn(5, 4) + 2000", (5, 4), mean=2000.0, breaks_one_pass=True
    ),
    of_normal(
        "pytorch-40302", "pytorch #40302: randn * 0.01 + 100", (4, 256), 0.01, 100.0, breaks_one_pass=True
    ),
    NormCase(
        "pytorch-41527", "pytorch #41527: float16 zeros with eps 1e-12", constant(0.0), (3, 128), eps=1e-12
    ),
    NormCase("xpu-1374", "intel torch-xpu-ops #1374: 1e15 + i", consecutive(10**15, 1024), (2, 1024)),
    NormCase(
        "constant-3.3333",
        "a constant row: two_pass is off by 0.43 without the hi/lo mean",
        constant(3.3333),
        (3, 4095),
        eps=1e-12,
    ),
    NormCase(
        "one-value",
        "rows of one large value: of a variance that rounding left, rstd was next to nothing",
        lambda rng: LARGE.astype(np.float64),
        (6, 5132),
    ),
    NormCase(
        "neighbours",
        "two values, one unit in the last place apart: spread - low² lost up to four digits",
        adjacent_floats(5132),
        (6, 5132),
    ),
    NormCase(
        "outlier-first",
        "1e6 where a pivot is taken from, among normal values",
        outlier_first(3, 1024),
        (3, 1024),
    ),
    NormCase("outlier", "one 1e4 among normal values: y reaches sqrt(N)", outlier, (3, 1024)),
    of_normal(
        "huge", "±1e18: each square fits float32, their sum does not", (3, 4096), 1e18, breaks_one_pass=True
    ),
    of_normal("tiny", "1e-20: squares are denormal or 0, eps decides", (3, 512), 1e-20),
    of_normal("denormal", "denormal inputs, which an adapter may flush to 0", (3, 512), 1e-40),
    NormCase(
        "row-scales",
        "neighbouring rows from 1e-18 to 1e17: none may leak into another",
        row_scales,
        (24, 257),
    ),
    NormCase(
        "nan-row", "NaN in one row must not reach another", with_bad_values(np.nan), (9, 130), options=BOTH
    ),
    NormCase(
        "inf-row", "Inf in one row must not reach another", with_bad_values(np.inf), (9, 130), options=BOTH
    ),
    NormCase(
        "minus-inf-row",
        "-Inf in one row must not reach another",
        with_bad_values(-np.inf),
        (9, 130),
        options=BOTH,
    ),
    NormCase(
        "nan-first", "NaN where a pivot is taken from", with_bad_values(np.nan, col=0), (9, 130), options=BOTH
    ),
    NormCase(
        "inf-last", "Inf in a row's last column", with_bad_values(np.inf, col=129), (9, 130), options=BOTH
    ),
    NormCase(
        "nan-and-inf-row",
        "several that are no numbers in one row",
        with_bad_values(np.inf, np.nan, -np.inf, np.inf),
        (9, 130),
        options=BOTH,
    ),
    *OPTION_CASES,
)

# Guarantees other than for values of x: the caller's eps, parameters of any sign and size, batches that are
# cut, and sizes beyond indices or counts of 16 bits.
PROMISES: tuple[NormCase, ...] = (
    *(
        of_normal(
            f"eps-{eps:g}",
            "the caller's eps, where it weighs as much as the variance",
            (5, 64),
            math.sqrt(eps) or 1e-3,
            eps=eps,
        )
        for eps in (0.0, 1e-12, 1e-8, 1e-6, 1e-3, 0.1, 1.0, 100.0)
    ),
    *(
        of_normal(
            f"parameters-{size:g}{name}",
            "parameters and gradients of either sign, some of them 0",
            (6, 200),
            options=options,
            others_sd=size,
        )
        for size in (1.0, 1e-4, 1e3)
        for name, options in (("", NormOptions()), ("-zero-centered", NormOptions(zero_centered_weight=True)))
    ),
    *(
        of_normal(
            f"{narrow}-{cols}{name}",
            source,
            (602, cols),
            mean=5.0,
            options=options,
            narrow=narrow,
        )
        for narrow, lengths, source in _CUT
        for cols in lengths
        for name, options in (
            ("", NormOptions()),
            ("-residual", NormOptions(residual=True, residual_bias=True, return_stats=True)),
            ("-saved-stats", NormOptions(saved_stats=True, dh=True, residual_bias=True)),
        )
    ),
    *(
        of_normal(
            f"bindings-61-{out_dtype}",
            "slices of y in bytes begin at another place in a word than slices of x",
            (602, 61),
            mean=5.0,
            options=NormOptions(out_dtype=out_dtype),
            narrow="bindings",
        )
        for out_dtype in (*FP8, "int8")
    ),
    *(
        of_normal(
            f"{name}-beside",
            "NaN or Inf in parameters and gradients reaches only the elements that depend on it",
            (7, 130),
            options=BOTH,
            stray=stray,
        )
        for name, stray in (("nan", np.nan), ("inf", np.inf))
    ),
    of_normal(
        "saved-eps",
        "a gradient by statistics that another eps made",
        (9, 130),
        mean=2.0,
        options=NormOptions(saved_stats=True, dh=True),
        saved_eps=0.5,
    ),
    of_normal(
        "capped-64",
        "a cap that several rows of every workgroup stay below",
        (602, 70),
        mean=2.0,
        options=NormOptions(max_workgroups=64),
    ),
    of_normal("rows-4096", "a power of 2, as most batches are", (4096, 72), options=BOTH),
    of_normal("rows-4099", "rows between a usual batch and 2^16", (4099, 96), options=BOTH),
    of_normal("rows-131101", "more than 2^17 rows", (131101, 33), options=BOTH),
    of_normal("large", "8 million elements", (521, 16411), mean=3.0, options=BOTH),
    of_normal(
        "larger",
        "67 million elements: 2^28 bytes, more than a page's storage binding",
        (16411, 4099),
        mean=-2.0,
        options=BOTH,
        for_gpus=True,
    ),
)


def whole_corpus(seed: int) -> tuple[NormCase, ...]:
    """Return the fixed cases, with draws of this seed, and the drawn cases."""
    fixed = (replace(case, seed=seed) for case in (*CASES, *PROMISES))
    return (*fixed, *long_cases(seed), *hard_cases(seed), *drawn_cases(seed))


# --- cases whose shapes, values and options are drawn, the same for the same seed

# The number of drawn cases of norms, and of gradients.
_DRAWN = 4
_MOST_DRAWN = 1 << 19
_MOST_LONG = 1 << 17


# Values that break formulas, in rows of any length.
_HARD: tuple[Callable[[int], Draw], ...] = (
    lambda cols: outlier_first(2, cols),
    lambda cols: lambda rng: np.broadcast_to(rng.uniform(1, 1e6, (3, 1)), (3, cols)),
    adjacent_floats,
    lambda cols: normal(3, cols, mean=1e4),
    lambda cols: normal(3, cols, mean=-1e6),
    lambda cols: normal(2, cols, 1e18),
    lambda cols: normal(2, cols, 1e-20),
)


def long_cases(seed: int) -> Iterator[NormCase]:
    """Yield cases with options, long rows in slices, and a large eps.

    There is one case for each type of y, and for each kind of gradient. Each case has half of the other
    options.
    """
    rng = np.random.default_rng([seed, 2])
    types = (None, "float16", "bfloat16", *FP8, "int8")
    others = zip(*(_halves(rng, len(types)) for _ in range(5)), strict=True)
    for out_dtype, (odd, centred, residual, bias, stats) in zip(types, others, strict=True):
        options = NormOptions(
            zero_centered_weight=centred,
            weight_dtype=_one_of(rng, None, *STORAGE),
            residual=residual,
            residual_bias=residual and bias,
            return_stats=stats or out_dtype is None,
            out_dtype=out_dtype,
            max_workgroups=_one_of(rng, 0, 3, 64),
        )
        # A row with NaN or Inf also changes the maximum of all rows.
        stray = _one_of(rng, None, np.nan, np.inf)
        yield _long_case(rng, f"long-{out_dtype or 'y'}", options, odd, seed, stray)
    kinds = ((True, True), (True, False), (False, True))
    others = zip(*(_halves(rng, len(kinds)) for _ in range(3)), strict=True)
    for number, ((saved_stats, dh), (odd, centred, bias)) in enumerate(zip(kinds, others, strict=True)):
        options = NormOptions(
            zero_centered_weight=centred,
            weight_dtype=_one_of(rng, None, *STORAGE),
            residual_bias=bias,
            saved_stats=saved_stats,
            dh=dh,
            max_workgroups=_one_of(rng, 0, 3, 64),
        )
        # An odd bias tests sums over the rows of all slices.
        yield _long_case(rng, f"long-gradient-{number + 1}", options, odd or bias, seed)


def _halves(rng: np.random.Generator, count: int) -> list[bool]:
    """Return `count` booleans in random order. Half of them, rounded up, are True."""
    return [bool(one) for one in rng.permutation(count) % 2 == 0]


def _long_case(
    rng: np.random.Generator,
    name: str,
    options: NormOptions,
    odd: bool,
    seed: int,
    stray: float | None = None,
) -> NormCase:
    # Slices of an odd number of odd rows do not begin at the alignment of a binding.
    cols = _multiple(rng, round(2 ** rng.uniform(8.1, 11.5))) | odd
    rows = _multiple(rng, min(round(2 ** rng.uniform(6, 8)), _MOST_LONG // cols)) | odd
    # These means are so large that a gradient needs both words of a saved mean.
    mean = _one_of(rng, 1e4, -1e4) if options.saved_stats else _one_of(rng, 20.0, -20.0)
    return NormCase(
        name,
        "drawn: options with long rows, slices, another eps",
        _with_stray(rng, normal(rows, cols, mean=mean), rows, cols, stray),
        (rows, cols),
        eps=10 ** rng.uniform(-2, 0),
        scale=10 ** rng.uniform(-1, 1) if options.out_dtype in FP8 else 1.0,
        options=options,
        narrow="bindings",
        seed=seed,
    )


def hard_cases(seed: int) -> Iterator[NormCase]:
    """Yield values that break formulas, in short and in long rows whose length depends on the seed."""
    rng = np.random.default_rng([seed, 3])
    for name, least, most in (("short", 2, 8), ("long", 8, 13)):
        cols = _multiple(rng, round(2 ** rng.uniform(least, most)))
        yield NormCase(
            f"hard-{name}", "drawn: rows that break formulas, of another length", *_hard(cols), seed=seed
        )


def _hard(cols: int) -> tuple[Draw, tuple[int, int]]:
    def x(rng: np.random.Generator) -> Array:
        return np.concatenate([values(cols)(rng) for values in _HARD])

    return x, (len(x(np.random.default_rng(0))), cols)


def _with_stray(rng: np.random.Generator, x: Draw, rows: int, cols: int, stray: float | None) -> Draw:
    """Return a draw with one value replaced."""
    row, col = rng.integers(rows), _one_of(rng, 0, cols - 1, rng.integers(cols))

    def changed(rng: np.random.Generator) -> Array:
        drawn = x(rng)
        if stray is not None:
            drawn[row, col] = stray
        return drawn

    return changed


def drawn_cases(seed: int) -> tuple[NormCase, ...]:
    """Return cases of random shapes, values, options, eps and parameters, the same for the same seed."""
    return tuple(
        _drawn_case(f"drawn-{name}{number}", np.random.default_rng([seed, backward, number]), OPS[op], seed)
        for backward, (name, op) in enumerate((("", "layer_norm"), ("backward-", "layer_norm_backward")))
        for number in range(1, _DRAWN + 1)
    )


def _drawn_case(name: str, rng: np.random.Generator, op: Op, seed: int) -> NormCase:
    cols = _multiple(rng, round(2 ** rng.uniform(0, 14)))
    rows = _multiple(rng, max(1, min(round(2 ** rng.uniform(0, 16)), _MOST_DRAWN // cols)))
    size, mean = 10 ** rng.uniform(-3, 3), _one_of(rng, 0.0, 1.0, -1.0) * 10 ** rng.uniform(-2, 3)
    options = _drawn_options(rng, op, cols) if rng.random() < 0.5 else NormOptions(bias=rng.random() < 0.5)
    stray = _one_of(rng, None, None, None, np.nan, np.inf, -np.inf)
    return NormCase(
        name,
        "drawn: --seed repeats it",
        _with_stray(rng, normal(rows, cols, size, mean * size), rows, cols, stray),
        (rows, cols),
        eps=10 ** rng.uniform(-12, 0) * (size**2 if rng.random() < 0.5 else 1.0),
        scale=10 ** rng.uniform(-1, 1) if options.out_dtype in FP8 else 1.0,
        options=options,
        others_sd=10 ** rng.uniform(-1, 1),
        narrow=_one_of(rng, "bindings", None) if rows >= _FEWEST_TO_CUT else None,
        seed=seed,
    )


def _multiple(rng: np.random.Generator, count: int) -> int:
    """Return a similar number.

    Half of the draws are multiples of a power of 2, like most columns of models.
    """
    unit: int = _one_of(rng, 1, 1, 1, 4, 64, 1 << int(math.log2(count)))
    return max(unit, count // unit * unit)


# Enough rows for slices with several workgroups.
_FEWEST_TO_CUT = 256


def _one_of(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _drawn_options(rng: np.random.Generator, op: Op, cols: int) -> NormOptions:
    """Return a random choice of an op's options."""
    flags = [name for name in op.options if name in NormOptions.flags()]
    chosen: dict[str, Any] = {name: rng.random() < 0.5 for name in flags}
    chosen["weight_dtype"] = _one_of(rng, None, *STORAGE)
    chosen["max_workgroups"] = _one_of(rng, 0, 0, 1, 5, 64, 1000)
    if "residual_dtype" in op.options and chosen["residual"]:
        chosen["residual_dtype"] = _one_of(rng, None, None, *STORAGE)
    if "rounding" in op.options:
        chosen["rounding"] = _one_of(rng, None, None, *NormOptions.VALUES["rounding"])
    if "out_dtype" in op.options:
        chosen["out_dtype"] = _one_of(rng, None, *FP8, "int8", *STORAGE)
    if chosen.get("out_dtype") == "int8" and cols % 4 == 0:
        chosen["scale_block"] = _one_of(rng, *SCALE_BLOCKS)
    if "residual" in op.options and not chosen["residual"]:
        chosen["residual_bias"] = False
    if not chosen["weight"]:
        chosen["zero_centered_weight"] = False
    elif not chosen["zero_centered_weight"]:
        chosen["weight_offset"] = _one_of(rng, 0.0, 0.0, 1.0, -0.625)
    return NormOptions(**chosen)
