"""What float64 says of traced values, and what rstd and mean a kernel took that is right but for these."""

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
from webnorm.ops.norms.reference import UNIT_ROUNDOFF, add_residual, centered

# Two numbers are found for a row: of fewer elements they would explain anything.
_FEWEST_COLS = 8
# Times its tolerance that an element may be off the line.
_NEAR = 8.0
# A parameter next to nothing tells nothing of what it multiplies.
_SMALL = 1e-3
# Such parts of a standard deviation, or of rstd, are a rounding's and no formula's.
_DIGITS = 1e-3
# What a slope is known to: of an arithmetic in float32, and in roundings of y over the root of their number.
_SLOPE_DIGITS, _SLOPE_ROUNDINGS = 4e-6, 4.0
# What a sum may be off by, in units of itself, to be that of some columns.
_NEAR_SUM = 1e-4
# No sum of squares that matters.
_TINY = 1e-300
# A mean of so many standard deviations, squared, takes more digits than a tolerance leaves.
_CONDITION = 100.0


@dataclass(frozen=True)
class FittedRowStatistics:
    """What wrong rows fit: `factor` times the right rstd, a mean that is off by `offset` standard deviations,
    each (rows,). `bad` are rows that have something that is no number, of which nothing is known. `dtype` is
    that of y.
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
        told = [f"rstd is off by a factor of {_range(self.factor, off)}"]
        if np.abs(self.offset).max() <= _DIGITS:
            told += self._left_out()
        return told

    def _of_mean(self) -> list[str]:
        off = np.abs(self.offset).max()
        if off <= max(1e-6, 0.01 * np.abs(self.factor - 1.0).max()):
            return []
        if self.rows.has_mean:
            return [f"the mean is off by {_range(self.offset, off, ' standard deviations')}"]
        return [f"{_range(self.offset, off)} is taken off x̂"]

    def _left_out(self) -> list[str]:
        """The columns that a sum of squares leaves out, where that explains rstd."""
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
        """The eps that rstd fits in all rows, and the divisor of the variance, in words that go on after "a
        kernel that": the simplest that does. None where another eps does not explain it.
        """
        rows, n = self.rows, self.rows.cols
        # Rows that are alike fit a factor, or any eps.
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
            # What it is known to: the row with the least spread determines it best.
            known = float((digits * taken).min())
            if (off <= 2.0 * digits).all() and abs(added - eps) > 8.0 * known:
                return f"takes {_eps(added, eps, known, n)}{words}"
        return None

    def rounding(self) -> str | None:
        """Which rounding they fit, where they grow with the mean as that does."""
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
    """What is added in place of eps, as far as it is known, and what that is in terms of eps."""
    if abs(added) <= 2.0 * known:
        return f"no eps in place of {eps:g}"
    told = f"{added:.3g} for eps in place of {eps:g}"
    likely = {"eps squared": eps**2, "the root of eps": eps**0.5, "eps times N": eps * cols}
    for words, value in likely.items():
        if eps and abs(added - value) <= max(8.0 * known, 1e-3 * value):
            return f"{told} ({words})"
    return told


def _range(values: Float64Array, off: float, unit: str = "") -> str:
    """A number for all rows, or from where to where."""
    low, high = float(values.min()), float(values.max())
    if high - low > 0.02 * off:
        return f"{low:.4g} to {high:.4g}{unit}"
    return f"{float(np.median(values)):.6g}{unit}{' in all rows' if len(values) > 1 else ''}"


def fit_row_statistics(
    one: OutputComparison, task: Task, arrays: Mapping[str, Array], few: slice
) -> FittedRowStatistics | None:
    """The statistics that all wrong rows among a few of y fit, each its own; None where one does not.

    An element is weight * (factor * x̂ - offset) + bias then. `arrays` are those of `reference.forward`, of
    these rows.
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
    """Whether each four neighbouring elements, which an invocation has, fit statistics of their own."""
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
    """Yield what a wrong y fits that is explained by its digits, then what it fits by its statistics.

    Either is a kind of hint and a sentence, or None.
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
    """Of int8: that y is right by the scale that was written, which is wrong."""
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
    """Whether it is a y whose digits tell rstd and mean."""
    return one.name == "y" and not task.op.gradient and task.problem.out_dtype in STORAGE


def _line(
    rows: NormalizationInputs, one: OutputComparison, found: Deviations, at: Array, group: int | None = None
) -> tuple[Float64Array, Float64Array, Array]:
    """For each row, or each `group` of neighbours in it, the slope and level with the least squares of
    got - weight * (slope * x̂ + level) - bias, and whether all its elements are as near to that as rounding.
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
