"""Float64 values of traced names, and the rstd and mean that explain a kernel's otherwise right output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from webnorm.lab.diagnose.heat_map import wrong_elements
from webnorm.lab.diagnose.hints import Kind, WrongResult
from webnorm.lab.diagnose.trace import TraceExpectation
from webnorm.lab.verify.deviations import Deviations, OutputComparison
from webnorm.op.dtypes import STORAGE, Array, finfo
from webnorm.op.op import Float64Array, Task, ToleranceFactors
from webnorm.ops.norms.mistakes import NormalizationInputs, rows_of
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.reference import add_residual
from webnorm.ops.rows import UNIT_ROUNDOFF, centered

# The fit has two numbers per row, which would explain any row with few elements.
_FEWEST_COLS = 8
# The allowed distance of an element from the line, in tolerances.
_NEAR = 8.0
# A weight below this share of the largest does not reveal its factor.
_SMALL = 1e-3
# Smaller shares of a standard deviation, or of rstd, come from rounding and not from a formula.
_DIGITS = 1e-3
# The accuracy of a slope: for float32 arithmetic, and in roundings of y divided by the root of their number.
_SLOPE_DIGITS, _SLOPE_ROUNDINGS = 4e-6, 4.0
# The relative error up to which a sum counts as the sum of some columns.
_NEAR_SUM = 1e-4
# A lower bound that avoids a division by zero.
_TINY = 1e-300
# Above this square of mean / sd, a rounded mean costs more digits than the tolerance allows.
_CONDITION = 100.0


@dataclass(frozen=True)
class FittedRowStatistics:
    """The statistics that explain wrong rows.

    Attributes
    ----------
    rows
        The right values.
    at
        The indices of the wrong rows.
    factor
        The factor of the right rstd (rows,).
    offset
        The error of the mean in standard deviations (rows,).
    bad
        The indices of rows with NaN or Inf, whose statistics are unknown.
    dtype
        The storage type of y.
    """

    rows: NormalizationInputs
    at: Array
    factor: Float64Array
    offset: Float64Array
    bad: Array
    dtype: str

    def __str__(self) -> str:
        return "; ".join([*self._of_rstd(), *self._of_mean()])

    def _of_rstd(self) -> list[str]:
        off = np.abs(self.factor - 1.0).max()
        if off <= max(1e-6, 0.01 * np.abs(self.offset).max()):
            return []
        parts = [f"rstd is off by a factor of {_range(self.factor, off)}"]
        if np.abs(self.offset).max() <= _DIGITS:
            parts += self._left_out()
        return parts

    def _of_mean(self) -> list[str]:
        off = np.abs(self.offset).max()
        if off <= max(1e-6, 0.01 * np.abs(self.factor - 1.0).max()):
            return []
        if self.rows.has_mean:
            return [f"the mean is off by {_range(self.offset, off, ' standard deviations')}"]
        return [f"{_range(self.offset, off)} is taken off x̂"]

    def _left_out(self) -> list[str]:
        """Return the columns that a sum of squares leaves out, if that explains rstd."""
        rows, n = self.rows, self.rows.cols
        with np.errstate(divide="ignore"):
            variance = 1.0 / (self.factor * rows.rstd[self.at, 0]) ** 2 - rows.problem.eps
        sums = n * np.maximum(0.0, variance)
        before = np.cumsum(rows.d[self.at] ** 2, axis=1)
        whole = before[:, -1:]
        if (sums <= _DIGITS * whole[:, 0]).all():
            return ["as if the sum of squares were 0"]
        for words, left in (("last", before), ("first", whole - before)):
            off = (np.abs(left - sums[:, None]) / np.maximum(whole, _TINY)).max(axis=0)
            column = int(off.argmin())
            count = n - 1 - column if words == "last" else column + 1
            if off[column] <= _NEAR_SUM and 0 < count < n:
                return [f"as if the sum of squares left out the {words} {count} of {n} columns"]
        return []

    def constants(self) -> str | None:
        """Return the eps that explains rstd in all rows, and the divisor of the variance.

        The text continues "a kernel that", and names the simplest explanation. The result is None if no other
        eps explains rstd.
        """
        rows, n = self.rows, self.rows.cols
        # Rows with similar variances fit a factor, or any eps.
        few = float(finfo(self.dtype).eps) / np.sqrt(n)
        digits = max(_SLOPE_DIGITS, _SLOPE_ROUNDINGS * few)
        if np.ptp(self.factor) <= 8.0 * digits or np.abs(self.offset).max() > _DIGITS or self.bad.size:
            return None
        variance, eps = rows.variance[self.at, 0], rows.problem.eps
        root = 1.0 / (self.factor * rows.rstd[self.at, 0])
        spread = "variance" if rows.has_mean else "mean of squares"
        models = {
            "": (root**2, variance),
            f" and divides the {spread} by N - 1": (root**2, variance * (n / max(1, n - 1))),
            f" and divides the {spread} by N + 1": (root**2, variance * (n / (n + 1))),
            " outside of the root": (root, np.sqrt(variance)),
        }
        for words, (taken, without) in models.items():
            each, weight = taken - without, taken**-2
            added = float((weight * each).sum() / weight.sum())
            off = np.abs(each - added) / taken
            # The row with the smallest spread determines the accuracy of eps.
            known = float((digits * taken).min())
            if (off <= 2.0 * digits).all() and abs(added - eps) > 8.0 * known:
                return f"takes {_eps(added, eps, known, n)}{words}"
        return None

    def rounding(self) -> str | None:
        """Return the rounding that explains the errors, if they grow with the mean like its error."""
        rows = self.rows
        mean, variance, rstd = (each[:, 0] for each in (rows.mean, rows.variance, rows.rstd))
        condition = (mean * rstd) ** 2
        size = UNIT_ROUNDOFF * (16.0 + 4.0 * np.sqrt(rows.cols))
        at = self.at
        mean_is_right = (np.abs(self.offset) <= size * (1.0 + np.abs(mean[at]) * rstd[at])).all()
        if not mean_is_right or not rows.has_mean or condition.max() < _CONDITION:
            return None
        with np.errstate(all="ignore"):
            taken = 1.0 / (self.factor * rstd[at]) ** 2
            off = np.abs(taken - variance[at] - rows.problem.eps)
        bound = size * (mean**2 + variance)
        if (np.abs(self.factor - 1.0) <= size * condition[at] ** 0.5).all() and not self.bad.size:
            return "a mean that is rounded to float32: such an error grows with |mean| / sd"
        if (off <= bound[at]).all() and (bound[self.bad] >= variance[self.bad]).all():
            return "E[x²] - E[x]² in float32, one pass: such an error grows with (mean / sd)²"
        return None


def _eps(added: float, eps: float, known: float, cols: int) -> str:
    """Return the number that replaces eps, with the digits that are known, and its relation to eps."""
    if abs(added) <= 2.0 * known:
        return f"no eps in place of {eps:g}"
    found = f"{added:.3g} for eps in place of {eps:g}"
    likely = {"eps squared": eps**2, "the root of eps": eps**0.5, "eps times N": eps * cols}
    for words, value in likely.items():
        if eps and abs(added - value) <= max(8.0 * known, 1e-3 * value):
            return f"{found} ({words})"
    return found


def _range(values: Float64Array, off: float, unit: str = "") -> str:
    """Return one number for all rows, or the range of the numbers."""
    low, high = float(values.min()), float(values.max())
    if high - low > 0.02 * off:
        return f"{low:.4g} to {high:.4g}{unit}"
    return f"{float(np.median(values)):.6g}{unit}{' in all rows' if len(values) > 1 else ''}"


def fit_row_statistics(
    one: OutputComparison, task: Task, arrays: Mapping[str, Array], few: slice
) -> FittedRowStatistics | None:
    """Return the statistics that explain all wrong rows in a slice of y; None if one row has no explanation.

    The model of an element is weight * (factor * x̂ - offset) + bias. `arrays` are the inputs of
    `reference.forward` for these rows.
    """
    if not _has_lines(one, task) or task.problem.cols < _FEWEST_COLS:
        return None
    found = one.of(few)
    wrong = (found.ratio > 1.0).any(axis=1)
    finite = np.isfinite(found.got).all(axis=1)
    at, bad = np.flatnonzero(wrong & finite), np.flatnonzero(wrong & ~finite)
    if not at.size:
        return None
    with np.errstate(all="ignore"):
        rows = rows_of(task, arrays)
        slope, level, near = _line(rows, one, found, at)
        if not near.all():
            return None
        return FittedRowStatistics(rows, at, slope[:, 0], (-level / slope)[:, 0], bad, one.dtype)


def differs_within_rows(one: OutputComparison, task: Task, arrays: Mapping[str, Array], few: slice) -> bool:
    """Return True if each group of four neighbouring elements has its own statistics.

    One invocation computes such a group.
    """
    if not _has_lines(one, task) or task.problem.cols % 4:
        return False
    found = one.of(few)
    with np.errstate(all="ignore"):
        rows = rows_of(task, arrays)
        _, _, near = _line(rows, one, found, np.arange(len(rows.x)), 4)
        return bool(near.all())


def statistics_hints(
    one: OutputComparison, task: Task, arrays: Mapping[str, Array], rows: slice, failure: WrongResult
) -> Iterator[tuple[Kind, str] | None]:
    """Yield explanations of a wrong y: by rounding first, then by its statistics.

    Each is the kind of hint and a sentence, or None.
    """
    statistics = fit_row_statistics(one, task, arrays, rows)
    rounding = statistics.rounding() if statistics else None
    yield ("precision", f"{one.name} fits {rounding}") if rounding else None
    if statistics and (constants := statistics.constants()):
        yield "formula", f"{one.name} fits a kernel that {constants}"
    elif statistics and str(statistics):
        text = f"{one.name} fits right elements under wrong statistics of their row: {statistics}"
        yield "statistics", f"{text}; look at the reduction, or at a mask"
    elif differs_within_rows(one, task, arrays, rows):
        text = f"{one.name} fits right elements under statistics that differ within a row"
        yield "statistics", f"{text}, one pair for each four columns: look at the reduction"
    elif scale := _other_scale(failure, one):
        yield "statistics", scale


def _other_scale(failure: WrongResult, one: OutputComparison) -> str | None:
    """Return a hint if an int8 y is right for the y_scale that was written, which is wrong."""
    if one.name != "y" or "y_scale" not in failure.outputs:
        return None
    with np.errstate(all="ignore"):
        factor = failure.answers["y_scale"].value / failure.outputs["y_scale"][0]
        answer = replace(
            one.answer, value=one.answer.value * factor, error_scale=one.answer.error_scale * factor
        )
    if wrong_elements(replace(one, answer=answer)).count:
        return None
    return "y fits the y_scale that was written, and that is wrong: look at how a row's largest |y| is found"


def _has_lines(one: OutputComparison, task: Task) -> bool:
    """Return True for a y with enough digits to determine rstd and mean."""
    return one.name == "y" and not task.op.gradient and task.problem.out_dtype in STORAGE


def _line(
    rows: NormalizationInputs, one: OutputComparison, found: Deviations, at: Array, group: int | None = None
) -> tuple[Float64Array, Float64Array, Array]:
    """Fit got = weight * (slope * x̂ + level) + bias by least squares, for each row or each `group` in it.

    Returns
    -------
    tuple
        The slopes, the levels, and True for each fit whose elements are all as close as rounding allows.
    """
    weight = np.ones(rows.cols) if rows.weight is None else rows.weight
    weight = np.where(np.abs(weight) > _SMALL * np.abs(weight).max(), weight, 0.0)
    bias = 0.0 if rows.bias is None else rows.bias
    along, up, z, limit, size = (
        np.broadcast_to(each, (len(at), rows.cols)).reshape(-1, group or rows.cols)
        for each in (
            rows.xhat[at] * weight,
            weight,
            np.where(weight, found.got[at] - bias, 0.0),
            found.limit[at],
            float(finfo(one.dtype).eps) * np.abs(found.got[at]),
        )
    )
    aa, au, uu, az, uz = (
        np.einsum("ij,ij->i", *pair)[:, None]
        for pair in ((along, along), (along, up), (up, up), (along, z), (up, z))
    )
    whole = aa * uu - au * au
    slope, level = (uu * az - au * uz) / whole, (aa * uz - au * az) / whole
    off = np.abs(slope * along + level * up - z)
    return slope, level, (off <= _NEAR * limit * np.maximum(1.0, np.abs(slope)) + size).all(axis=1)


# The relative errors of a number that is rounded to float32, and of one in two words, are smaller.
_ROUNDED, _TWICE_ROUNDED = 2.0**-23, 2.0**-40


def row_expectations(
    task: Task, arrays: Mapping[str, Array], allowed: ToleranceFactors, names: Mapping[str, int]
) -> dict[str, TraceExpectation]:
    """Return `mean`, `low`, `variance` and `rstd` of every row, as far as the op has them.

    Tolerances follow from the tolerance `allowed` of an element. The expectation of low is the mean too: a
    kernel's low is the difference from its own mean.
    """
    op, problem = task.op, task.problem
    with_mean, saved = has_mean(op), arrays.get("stats")
    if saved is None:
        x = _normalized(task, arrays)
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
        # The error of the mean adds its square to the variance.
        of_mean = (allowed.slope + _ROUNDED) * size
        known["variance"] = TraceExpectation(variance, 2.0 * off * deviation + of_mean * of_mean)
    if with_mean:
        known["mean"] = TraceExpectation(mean, off + _ROUNDED * size)
        known["low"] = TraceExpectation(mean, off + _TWICE_ROUNDED * size, relative_to="mean")
    if "row_parts" in names and saved is None:
        # Such kernels trace the mean of the first part, which may differ from the row's.
        known.pop("mean", None)
    return known


def column_expectations(
    task: Task, arrays: Mapping[str, Array], allowed: ToleranceFactors
) -> dict[str, TraceExpectation]:
    """Return the tensors with columns: inputs, h, and y or dx before they are scaled and stored."""
    op, problem = task.op, task.problem
    read = {name: arrays[name].astype(np.float64) for name in ("x", "residual", "dy", "dh") if name in arrays}
    if not op.gradient:
        read["h"] = _normalized(task, arrays).astype(np.float64)
    step = float(finfo(problem.dtype).eps)
    known = {name: TraceExpectation(value, step * np.abs(value)) for name, value in read.items()}
    unscaled = replace(problem, scale=1.0, options=replace(problem.options, out_dtype="float32"))
    answers = op.reference(arrays, problem if op.gradient else unscaled)
    (name,) = {"y", "dx"} & answers.keys()
    answer = answers[name]
    off = allowed.base * answer.error_scale.astype(np.float64) + allowed.slope * answer.mean_error_scale
    return {**known, name: TraceExpectation(answer.value, off)}


def _normalized(task: Task, arrays: Mapping[str, Array]) -> Array:
    """Return the array that is normalized, in its storage type."""
    x = arrays["x"]
    return add_residual(arrays).astype(x.dtype) if task.problem.options.residual else x
