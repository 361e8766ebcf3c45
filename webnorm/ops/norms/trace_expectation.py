"""What float64 says of values that kernels name alike: statistics of rows, tensors column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from webnorm.lab.diagnose.trace import TraceExpectation
from webnorm.op.dtypes import Array, finfo
from webnorm.op.expected import ToleranceFactors
from webnorm.op.op import Task
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.reference import add_residual, centered

# The relative errors of a number that is rounded to float32, and of one in two words, are smaller.
_ROUNDED, _TWICE_ROUNDED = 2.0**-23, 2.0**-40


def row_expectations(
    task: Task, arrays: Mapping[str, Array], allowed: ToleranceFactors, names: Mapping[str, int]
) -> dict[str, TraceExpectation]:
    """`mean`, `low`, `variance` and `rstd` of every row, those that the op has, with tolerances as `allowed`
    of an element. low is the mean, too: what is left of it is its difference from a kernel's.
    """
    op, problem = task.op, task.problem
    with_mean, saved = has_mean(op), arrays.get("stats")
    if saved is None:
        x = _normalised(task, arrays)
        distances, mean = centered(x) if with_mean else (x.astype(np.float64), np.zeros((len(x), 1)))
        variance = np.mean(distances * distances, axis=1, keepdims=True)
        rstd = 1.0 / np.sqrt(variance + problem.eps)
    else:
        words = saved.astype(np.float64)
        rstd = words[:, -1:]
        mean = words[:, :1] + words[:, 1:2] if with_mean else np.zeros_like(rstd)
    size, deviation = np.abs(mean), 1.0 / rstd
    off = allowed.base * deviation + allowed.slope * size
    known = {"rstd": TraceExpectation(rstd, off * rstd * rstd)}
    if saved is None:
        # Distances from a mean that is off add its error's square.
        of_mean = (allowed.slope + _ROUNDED) * size
        known["variance"] = TraceExpectation(variance, 2.0 * off * deviation + of_mean * of_mean)
    if with_mean:
        known["mean"] = TraceExpectation(mean, off + _ROUNDED * size)
        known["low"] = TraceExpectation(mean, off + _TWICE_ROUNDED * size, relative_to="mean")
    if "row_parts" in names and saved is None:
        # It is the first part's there, from which the row's may be far.
        known.pop("mean", None)
    return known


def column_expectations(
    task: Task, arrays: Mapping[str, Array], allowed: ToleranceFactors
) -> dict[str, TraceExpectation]:
    """The tensors with columns: those that are read, h, and y or dx before they are scaled and stored."""
    op, problem = task.op, task.problem
    read = {name: arrays[name].astype(np.float64) for name in ("x", "residual", "dy", "dh") if name in arrays}
    if not op.gradient:
        read["h"] = _normalised(task, arrays).astype(np.float64)
    step = float(finfo(problem.dtype).eps)
    known = {name: TraceExpectation(value, step * np.abs(value)) for name, value in read.items()}
    unscaled = replace(problem, scale=1.0, options=replace(problem.options, out_dtype="float32"))
    answers = op.reference(arrays, problem if op.gradient else unscaled)
    (name,) = {"y", "dx"} & answers.keys()
    answer = answers[name]
    off = allowed.base * answer.error_scale.astype(np.float64) + allowed.slope * answer.mean_error_scale
    return {**known, name: TraceExpectation(answer.value, off)}


def _normalised(task: Task, arrays: Mapping[str, Array]) -> Array:
    """What is normalised, as it is stored."""
    x = arrays["x"]
    return add_residual(arrays).astype(x.dtype) if task.problem.options.residual else x
