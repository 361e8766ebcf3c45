"""Rows of columns: the problems of the copy, the base of the norms' problems, and their inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from webnorm.op.blocks import converted, standard_normal
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Op, Task
from webnorm.op.options import Options
from webnorm.op.problem import NumberRule, Problem

EPS = NumberRule("eps", True, "0 or a number from 1.2e-38 to 8.5e+37: GPUs may round smaller numbers to 0")
SCALE = NumberRule(
    "scale",
    False,
    "a number from 1.2e-38 to 8.5e+37: GPUs may round smaller numbers, or their inverses, to 0",
)

# The quotes keep NumPy from importing its generators, which calls do not need.
DrawRows = Callable[["np.random.Generator", "RowProblem"], Array]


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


# A software adapter shares the cores with everything else, and small shapes are enough to compare kernels on
# it.
_SOFTWARE_SHAPES = ((1024, 256), (512, 768), (128, 4096))
LARGE_SHAPES = ((65536, 1024), (16384, 4096), (8192, 8192))


@dataclass(frozen=True, kw_only=True)
class RowProblem(Problem):
    """The problem of `rows` rows of `cols` columns.

    Every shader's uniform contains `eps` and `scale`; a copy reads neither.
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
        """Return the default rows and columns of a benchmark, which suit the adapter."""
        if quick:
            return ((256, 768),) if software else ((65536, 1024),)
        return _SOFTWARE_SHAPES if software else LARGE_SHAPES


def draw_x(problem: RowProblem) -> Array:
    """Draw x (rows, cols) in float64 from the problem's distribution, and round it to the problem's dtype."""
    rng = np.random.default_rng(problem.seed)
    x = DISTRIBUTIONS[problem.distribution](rng, problem)
    return converted(x, DTYPES[problem.dtype])


# --- the small problems on which a kernel is checked while it is written; they reveal mistakes

# An aligned shape; and rows that are not a multiple of any step, and longer than one sweep of a workgroup of
# 256 invocations with four elements each.
_SHAPES = ((8, 768), (7, 1061))
# Standard deviations of the rows in turn, in units of the square root of eps. Similar ones reveal mistakes
# with eps, and much larger ones reveal mistakes that eps hides.
_SPREADS = (0.25, 4.0, 300.0, 1.0)
# Means of the first row and of the last, in standard deviations. They differ from 0, but are small enough
# that rounding a mean to float32 has no visible effect.
_FIRST, _LAST = -2.0, 2.5
_SEED = 16


def playground_tasks(op: Op, dtype: str = "float32", options: Options | None = None) -> tuple[Task, ...]:
    """Return an aligned and an odd problem of an op; raise WebnormError for options that it lacks."""
    return tuple(
        Task(op, op.problem(*shape, dtype=dtype, options=options, distribution="given", seed=_SEED))
        for shape in _SHAPES
    )


def given_task(op: Op, dtype: str = "float32", options: Options | None = None) -> Task:
    """Return the problem for an x that a user chose."""
    return Task(
        op, op.problem(*_SHAPES[0], dtype=dtype, options=options, distribution="given", seed=_SEED + 1)
    )


def draw_given(task: Task, mean: float, spread: float) -> dict[str, Array]:
    """Draw inputs with a normal x of this mean and standard deviation, in the problem's type."""
    problem = task.problem
    rng = np.random.default_rng([problem.seed, problem.rows, problem.cols])
    x = mean + spread * rng.standard_normal((problem.rows, problem.cols))
    return task.op.draw(task, {"x": converted(x, DTYPES[problem.dtype])}, rng)


def draw_playground(task: Task) -> dict[str, Array]:
    """Draw the inputs of a task: rows of several scales and means.

    With these, a wrong formula differs from the right one, and from other wrong ones, by more than rounding.
    """
    problem = task.problem
    rng = np.random.default_rng([problem.seed, problem.rows, problem.cols])
    rows, eps = max(problem.rows, 1), problem.eps or task.op.scalars.get("eps", 1e-5)
    spread = math.sqrt(eps) * np.resize(_SPREADS, rows)[:, None]
    mean = np.linspace(_FIRST, _LAST, rows)[:, None]
    given = {
        "x": (rng.standard_normal((problem.rows, problem.cols)) + mean[: problem.rows])
        * spread[: problem.rows]
    }
    present = {tensor.name for tensor in task.op.present(problem) if tensor.access == "read"}
    if "residual" in present:
        # A residual much larger than x would hide mistakes with x.
        given["residual"] = rng.standard_normal(given["x"].shape) * spread[: problem.rows]
    if "residual_bias" in present and "residual" in present:
        given["residual_bias"] = rng.standard_normal(problem.cols) * math.sqrt(eps) * _SPREADS[0]
    dtypes = {tensor.name: DTYPES[tensor.dtype(problem)] for tensor in task.op.present(problem)}
    arrays = {name: converted(array, dtypes[name]) for name, array in given.items()}
    return task.op.draw(task, arrays, rng)


# --- the inputs of an export's test vectors

# Approximate elements of x in a vector. A package is downloaded, so it must be small.
_ELEMENTS = 24_000


def export_inputs(op: Op, problem: RowProblem) -> Iterator[tuple[str, str, Array]]:
    """Yield name, description and x (rows, cols) in float64 of each vector."""
    cols = problem.cols
    rng = np.random.default_rng(problem.seed)
    several = max(3, min(37, _ELEMENTS // cols)) | 1
    yield (
        "normal",
        f"{several} rows of normal numbers: an odd number, so that the last workgroup is not full",
        rng.standard_normal((several, cols)),
    )
    largest = float(np.finfo(np.float32).max if problem.dtype != "float16" else np.finfo(np.float16).max)
    kinds = [draw(rng, replace(problem, rows=1)) for draw in DISTRIBUTIONS.values()]
    # Without a mean, a constant row gives the weights. Many of them lie on rounding boundaries of float8.
    constant = [
        np.full((1, cols), value) for value in ((0.0, 3.0, -1000.0) if op.constants["has_mean"] else (0.0,))
    ]
    held = [row for row in [*kinds, *constant] if np.abs(row).max() <= largest]
    yield (
        "mixed",
        "rows of unlike distributions: large means, outliers, small scales, constant rows",
        np.concatenate(held[:: -(-len(held) // max(4, _ELEMENTS // cols))]),
    )
    poisoned = rng.standard_normal((3, cols))
    poisoned[1, cols // 2] = np.nan
    yield "nan", "a NaN in the middle row: its neighbours must not see it", poisoned
    yield "one_row", "a single row", rng.standard_normal((1, cols))
