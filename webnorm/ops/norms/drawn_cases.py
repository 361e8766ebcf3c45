"""Cases whose shapes, values and options are drawn, the same for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from webnorm.op.dtypes import FP8, STORAGE, Array
from webnorm.op.op import Op
from webnorm.op.registry import OPS
from webnorm.ops.norms.case import NormCase
from webnorm.ops.norms.problem import NormOptions
from webnorm.ops.norms.row_draws import Draw, adjacent_floats, normal, outlier_first

# Cases whose shapes, values and options are drawn, of norms and of their gradients each.
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
    """Options together with long rows, and many of them, that are cut into slices, and an eps that weighs:
    each type of y, and each kind of gradient, with half of the others.
    """
    rng = np.random.default_rng([seed, 2])
    types = (None, "float16", "bfloat16", *FP8, "int8")
    beside = zip(*(_halves(rng, len(types)) for _ in range(5)), strict=True)
    for out_dtype, (odd, centred, residual, bias, stats) in zip(types, beside, strict=True):
        options = NormOptions(
            zero_centered_weight=centred,
            weight_dtype=_one_of(rng, None, *STORAGE),
            residual=residual,
            residual_bias=residual and bias,
            return_stats=stats or out_dtype is None,
            out_dtype=out_dtype,
            max_workgroups=_one_of(rng, 0, 3, 64),
        )
        # In a row that has what is no number, so is the largest of all rows.
        stray = _one_of(rng, None, np.nan, np.inf)
        yield _long_case(rng, f"long-{out_dtype or 'y'}", options, odd, seed, stray)
    kinds = ((True, True), (True, False), (False, True))
    beside = zip(*(_halves(rng, len(kinds)) for _ in range(3)), strict=True)
    for number, ((saved_stats, dh), (odd, centred, bias)) in enumerate(zip(kinds, beside, strict=True)):
        options = NormOptions(
            zero_centered_weight=centred,
            weight_dtype=_one_of(rng, None, *STORAGE),
            residual_bias=bias,
            saved_stats=saved_stats,
            dh=dh,
            max_workgroups=_one_of(rng, 0, 3, 64),
        )
        # Sums over the rows of all slices.
        yield _long_case(rng, f"long-gradient-{number + 1}", options, odd or bias, seed)


def _halves(rng: np.random.Generator, count: int) -> list[bool]:
    """Half of them true, or one more, nobody knows which."""
    return [bool(one) for one in rng.permutation(count) % 2 == 0]


def _long_case(
    rng: np.random.Generator,
    name: str,
    options: NormOptions,
    odd: bool,
    seed: int,
    stray: float | None = None,
) -> NormCase:
    # Slices of an odd number of odd rows begin beside where a binding may begin.
    cols = _multiple(rng, round(2 ** rng.uniform(8.1, 11.5))) | odd
    rows = _multiple(rng, min(round(2 ** rng.uniform(6, 8)), _MOST_LONG // cols)) | odd
    # So far from 0 that a gradient needs both words of a saved mean.
    mean = _one_of(rng, 1e4, -1e4) if options.saved_stats else _one_of(rng, 20.0, -20.0)
    return NormCase(
        name,
        "drawn: options beside long rows, slices, another eps",
        _with_stray(rng, normal(rows, cols, mean=mean), rows, cols, stray),
        (rows, cols),
        eps=10 ** rng.uniform(-2, 0),
        scale=10 ** rng.uniform(-1, 1) if options.out_dtype in FP8 else 1.0,
        options=options,
        narrow="bindings",
        seed=seed,
    )


def hard_cases(seed: int) -> Iterator[NormCase]:
    """Values that break formulas, in rows of other lengths each time, short and long."""
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
    """The values, one of them in another's place."""
    row, col = rng.integers(rows), _one_of(rng, 0, cols - 1, rng.integers(cols))

    def changed(rng: np.random.Generator) -> Array:
        drawn = x(rng)
        if stray is not None:
            drawn[row, col] = stray
        return drawn

    return changed


def drawn_cases(seed: int) -> tuple[NormCase, ...]:
    """Cases of random shapes, values, options, eps and parameters, the same for the same seed."""
    return tuple(
        _drawn_case(f"drawn-{name}{number}", np.random.default_rng([seed, backward, number]), OPS[op], seed)
        for backward, (name, op) in enumerate((("", "layer_norm"), ("backward-", "layer_norm_backward")))
        for number in range(1, _DRAWN + 1)
    )


def _drawn_case(name: str, rng: np.random.Generator, op: Op, seed: int) -> NormCase:
    cols = _multiple(rng, round(2 ** rng.uniform(0, 14)))
    rows = _multiple(rng, max(1, min(round(2 ** rng.uniform(0, 16)), _MOST_DRAWN // cols)))
    size, mean = 10 ** rng.uniform(-3, 3), _one_of(rng, 0.0, 1.0, -1.0) * 10 ** rng.uniform(-2, 3)
    options = _drawn_options(rng, op) if rng.random() < 0.5 else NormOptions(bias=rng.random() < 0.5)
    stray = _one_of(rng, None, None, None, np.nan, np.inf, -np.inf)
    return NormCase(
        name,
        "drawn: --seed repeats it",
        _with_stray(rng, normal(rows, cols, size, mean * size), rows, cols, stray),
        (rows, cols),
        eps=10 ** rng.uniform(-12, 0) * (size**2 if rng.random() < 0.5 else 1.0),
        scale=10 ** rng.uniform(-1, 1) if options.out_dtype in FP8 else 1.0,
        options=options,
        beside=10 ** rng.uniform(-1, 1),
        narrow=_one_of(rng, "bindings", None) if rows >= _FEWEST_TO_CUT else None,
        seed=seed,
    )


def _multiple(rng: np.random.Generator, count: int) -> int:
    """About as many, and of half the draws a multiple of a power of 2, as most columns of models are."""
    unit: int = _one_of(rng, 1, 1, 1, 4, 64, 1 << int(math.log2(count)))
    return max(unit, count // unit * unit)


# Rows enough that slices of them have several workgroups.
_FEWEST_TO_CUT = 256


def _one_of(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _drawn_options(rng: np.random.Generator, op: Op) -> NormOptions:
    """Some of the options that an op has."""
    chosen: dict[str, Any] = {name: rng.random() < 0.5 for name in op.options}
    chosen["weight_dtype"] = _one_of(rng, None, *STORAGE)
    chosen["max_workgroups"] = _one_of(rng, 0, 0, 1, 5, 64, 1000)
    if "out_dtype" in op.options:
        chosen["out_dtype"] = _one_of(rng, None, *FP8, "int8", *STORAGE)
    if "residual" in op.options and not chosen["residual"]:
        chosen["residual_bias"] = False
    if not chosen["weight"]:
        chosen["zero_centered_weight"] = False
    return NormOptions(**chosen)
