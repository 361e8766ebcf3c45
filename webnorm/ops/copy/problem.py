"""Rows of columns: the problems of the copy, and the base of those of the norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from webnorm.op.blocks import converted, standard_normal
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.number_rules import NumberRule
from webnorm.op.problem import Problem

EPS = NumberRule("eps", True, "0 or a number from 1.2e-38 to 8.5e+37: GPUs may take a smaller one for 0")
SCALE = NumberRule(
    "scale", False, "a number from 1.2e-38 to 8.5e+37: GPUs may take a smaller one, or its inverse, for 0"
)

DrawRows = Callable[[np.random.Generator, "RowProblem"], Array]


def _shifted(mean: float) -> DrawRows:
    return lambda rng, problem: standard_normal(rng, (problem.rows, problem.cols)) + mean


def _outlier(rng: np.random.Generator, problem: RowProblem) -> Array:
    x = standard_normal(rng, (problem.rows, problem.cols))
    x[:, problem.cols // 2] = 1e4
    return x


def _row_scales(rng: np.random.Generator, problem: RowProblem) -> Array:
    scales = np.logspace(-6, 6, max(problem.rows, 1))[:, None]
    return standard_normal(rng, (problem.rows, problem.cols)) * scales


# Every draw is float64 of shape (rows, cols), rounded to the problem's dtype by draw_x.
DISTRIBUTIONS: Mapping[str, DrawRows] = {
    "normal": _shifted(0.0),
    "uniform": lambda rng, problem: rng.random((problem.rows, problem.cols)),
    "mean100": _shifted(1e2),
    "mean1000": _shifted(1e3),
    "mean1e4": _shifted(1e4),
    "mean1e6": _shifted(1e6),
    "triton": lambda rng, problem: -2.3 + 0.5 * standard_normal(rng, (problem.rows, problem.cols)),
    "outlier": _outlier,
    "row_scales": _row_scales,
}


# A software adapter computes on the cores that also run everything else: small shapes say as much.
_SOFTWARE_SHAPES = ((1024, 256), (512, 768), (128, 4096))
LARGE_SHAPES = ((65536, 1024), (16384, 4096), (8192, 8192))


@dataclass(frozen=True, kw_only=True)
class RowProblem(Problem):
    """`rows` rows of `cols` columns.

    `eps` and `scale` are words of every text's uniform; a copy reads neither.
    """

    rows: int
    cols: int
    eps: float = 1e-5
    scale: float = 1.0

    SIZES: ClassVar[Mapping[str, int]] = {"rows": 0, "cols": 1}
    BATCH: ClassVar[str] = "rows"
    AXIS: ClassVar[str] = "cols"
    SCALARS: ClassVar[Mapping[str, NumberRule]] = {"eps": EPS, "scale": SCALE}
    DISTRIBUTIONS: ClassVar[Mapping[str, DrawRows]] = DISTRIBUTIONS

    @classmethod
    def default_sizes(cls, software: bool, quick: bool) -> tuple[tuple[int, int], ...]:
        """Rows and columns of a benchmark that names none: they suit the adapter."""
        if quick:
            return ((256, 768),) if software else ((65536, 1024),)
        return _SOFTWARE_SHAPES if software else LARGE_SHAPES


def draw_x(problem: RowProblem) -> Array:
    """Draw x (rows, cols) in float64 from the problem's distribution and round it to its dtype."""
    rng = np.random.default_rng(problem.seed)
    x = DISTRIBUTIONS[problem.distribution](rng, problem)
    return converted(x, DTYPES[problem.dtype])
