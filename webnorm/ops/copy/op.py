"""The copy op, y = x, which measures the memory bandwidth of an adapter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from webnorm.op.blocks import converted
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Expected, ExpectedOutputs, Op, Task, Tensor
from webnorm.op.problem import Problem
from webnorm.ops.copy.problem import RowProblem, draw_x

# The most columns of a copy that may choose its rows, and the bytes of one access.
_ROW, _ACCESS_BYTES = 4096, 16


def _reference(arrays: Mapping[str, Array], problem: RowProblem) -> ExpectedOutputs:
    nothing = np.zeros(1)
    return {"y": Expected(converted(arrays["x"], np.float64), nothing, nothing)}


def _draw(task: Task, given: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    return {"x": given["x"] if "x" in given else draw_x(task.problem)}


def row_names(problem: RowProblem) -> dict[str, int]:
    """Return names for headers of kernels that work on rows.

    `span` is the largest number of columns in the vec4 of a row. If rows do not start at multiples of four,
    the first and the last vec4 include columns of other rows.
    """
    return {
        "span": problem.cols if problem.cols % 4 == 0 else problem.cols + 3,
        "itemsize": DTYPES[problem.dtype].itemsize,
    }


def _copied(problem: Problem) -> RowProblem:
    """Return the problem to copy: the problem's own shape, or a shape that moves about as many bytes."""
    given: dict[str, Any] = {"dtype": problem.dtype, "seed": problem.seed}
    if not isinstance(problem, RowProblem):
        itemsize = DTYPES[problem.dtype].itemsize
        elements = max(1, problem.copied_bytes // (2 * itemsize))
        rows = math.ceil(elements / _ROW)
        # A copy may choose its rows. With several rows, each begins at a whole access.
        cols = elements // rows // (_ACCESS_BYTES // itemsize) * (_ACCESS_BYTES // itemsize)
        return RowProblem(rows=rows, cols=cols if rows > 1 else elements, **given)
    return RowProblem(
        rows=problem.rows, cols=problem.cols, eps=problem.eps, distribution=problem.distribution, **given
    )


def other_version(task: Task, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the rows with the other sign."""
    return {name: np.negative(array) for name, array in arrays.items()}


_HOOKS: Mapping[str, Any] = {
    "other_version": other_version,
    "unused_scalars": lambda problem: ("scale",),
    "evaluation": "webnorm.ops.copy.problem",
    "export_inputs": "webnorm.ops.copy.problem:export_inputs",
}

OPS = (
    Op(
        "copy",
        "y = x: the roofline that every other op is measured against.",
        (
            Tensor("x", "read", ("rows", "cols"), batched=True),
            Tensor("y", "read_write", ("rows", "cols"), batched=True),
        ),
        _reference,
        RowProblem,
        _draw,
        constants={"has_mean": 0},
        is_copy=True,
        copied=_copied,
        header_names=row_names,
        hooks=_HOOKS,
    ),
)
