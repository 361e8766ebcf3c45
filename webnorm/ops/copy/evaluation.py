"""The problems that a kernel is judged on while it is written: small, and such that mistakes tell."""

from __future__ import annotations

import math

import numpy as np

from webnorm.op.blocks import converted
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Op, Task
from webnorm.op.options import Options

# Whole workgroups and chunks; and a row that is no whole number of anything, nor a single sweep of a
# workgroup with four elements for each of its 256 invocations.
_SHAPES = ((8, 768), (7, 1061))
# Standard deviations of the rows in turn, in units of the square root of eps: where they are alike, a mistake
# with eps is seen; far above it, one that hides behind eps.
_SPREADS = (0.25, 4.0, 300.0, 1.0)
# Means of the first row and of the last, in standard deviations: beside 0, and not so far that a mean that
# was rounded to float32 is seen.
_FIRST, _LAST = -2.0, 2.5
_SEED = 16


def playground_tasks(op: Op, dtype: str = "float32", options: Options | None = None) -> tuple[Task, ...]:
    """An aligned and an odd problem of an op; raises WebnormError for options that it lacks."""
    return tuple(
        Task(op, op.problem(*shape, dtype=dtype, options=options, distribution="given", seed=_SEED))
        for shape in _SHAPES
    )


def given_task(op: Op, dtype: str = "float32", options: Options | None = None) -> Task:
    """The problem of an x that somebody chose."""
    return Task(
        op, op.problem(*_SHAPES[0], dtype=dtype, options=options, distribution="given", seed=_SEED + 1)
    )


def draw_given(task: Task, mean: float, spread: float) -> dict[str, Array]:
    """Inputs with a normal x of this mean and standard deviation, in the problem's type."""
    problem = task.problem
    rng = np.random.default_rng([problem.seed, problem.rows, problem.cols])
    x = mean + spread * rng.standard_normal((problem.rows, problem.cols))
    return task.op.draw(task, {"x": converted(x, DTYPES[problem.dtype])}, rng)


def draw_playground(task: Task) -> dict[str, Array]:
    """The inputs of a task: rows of several scales and means, so that wrong formulas differ from the right
    one, and from each other, in more than rounding.
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
        # As large as x in its row, or it would take the place of it.
        given["residual"] = rng.standard_normal(given["x"].shape) * spread[: problem.rows]
    if "residual_bias" in present and "residual" in present:
        given["residual_bias"] = rng.standard_normal(problem.cols) * math.sqrt(eps) * _SPREADS[0]
    dtypes = {tensor.name: DTYPES[tensor.dtype(problem)] for tensor in task.op.present(problem)}
    arrays = {name: converted(array, dtypes[name]) for name, array in given.items()}
    return task.op.draw(task, arrays, rng)
