"""Deviations of outputs from their float64 answers, in units of the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from webnorm.op.blocks import Part, map_row_blocks
from webnorm.op.dtypes import DTYPES, INTEGERS, Array, finfo
from webnorm.op.op import Expected, ExpectedOutputs, Float64Array, Op, Task, ToleranceFactors

# An answer this close to a rounding boundary, in units of its tolerance, counts as a tie, which is not
# counted as a neighbour. For example, a constant row gives the weights; one in sixteen is halfway between two
# values of float8_e4m3fn.
TIE = 0.05
# Smaller results are not checked, because adapters may flush denormals to zero.
DENORMAL = 2.0**-126


@dataclass(frozen=True)
class OutputComparison:
    """One output of a problem with its answer; `got` and `answer.value` have the same shape.

    The output is a matrix: rows are elements of the batch, and columns the elements of one of them. `dtype`
    is the storage type. With `any_non_finite` NaN and infinities are equal, because the order of additions
    decides between them.
    """

    name: str
    got: Array
    answer: Expected
    dtype: str
    allowed: ToleranceFactors
    any_non_finite: bool = False

    @property
    def rows(self) -> int:
        """The number of rows, or of elements if the output has no rows."""
        return len(self.answer.value)

    @property
    def cols(self) -> int:
        """The number of elements in a row."""
        return self.answer.value.size // max(self.rows, 1)

    def map_blocks(self, work: Callable[[slice], Part]) -> list[Part]:
        """Return the results of `work` for each part of the rows, in order."""
        return map_row_blocks(work, self.rows, self.cols)

    def of(self, part: slice) -> Deviations:
        """Return the deviations of some of the rows."""
        return _deviations(self, self.got[part], _cut(self.answer, part))

    def ambiguous(self, part: slice) -> int:
        """Return the number of answers in some rows whose distance to a rounding boundary is in tolerance."""
        answer = _cut(self.answer, part)
        with np.errstate(invalid="ignore", over="ignore"):
            below, above = _ends(answer.value, _limit(answer, self.allowed), self.dtype)
            return int(((below != above) & np.isfinite(below) & np.isfinite(above)).sum())


@dataclass(frozen=True)
class Deviations:
    """The deviations of some rows; all arrays have the same shape.

    Attributes
    ----------
    got, value
        The output and the answer, in float64.
    error, limit
        The absolute error, and its tolerance without a narrow type's rounding.
    ratio
        The error divided by its full tolerance. Above 1 an element is wrong. It is infinite if the
        element is a number and the answer is not, or the other way round.
    counted
        True for answers that are numbers.
    missing
        True for elements that should be numbers and are not.
    stray
        True for elements that should be NaN or Inf and are not, or have the other sign.
    unequal
        The number of elements of a narrow type that are a neighbour of the rounded answer, no tie.
    vague
        The number of elements whose tolerance is as large as they are.
    """

    got: Float64Array
    value: Float64Array
    error: Float64Array
    limit: Array
    ratio: Float64Array
    counted: Array
    missing: Array
    stray: Array
    unequal: int
    vague: int

    def tolerated(self, at: tuple[int, ...], dtype: str) -> float:
        """Return the tolerance of one element."""
        value, limit = self.value[at], self.limit[at]
        return float(limit if dtype == "float32" else _reach(value, *_ends(value, limit, dtype)))


def compare_outputs(
    outputs: Mapping[str, tuple[Array, bool]], answers: ExpectedOutputs, task: Task, allowed: ToleranceFactors
) -> Iterator[tuple[OutputComparison, bool]]:
    """Yield every output of a task with its answer, the main one first, and true if its guard is intact."""
    for tensor in task.op.outputs(task.problem):
        got, guard_intact = outputs[tensor.name]
        if tensor.compared is not None:
            got = tensor.compared(got)
        own = allowed if tensor.tolerance is None else tensor.tolerance(task.problem)
        one = OutputComparison(
            tensor.name, got, answers[tensor.name], tensor.dtype(task.problem), own, tensor.any_non_finite
        )
        yield one, guard_intact


def batch_part(op: Op, arrays: Mapping[str, Array], part: slice | Array) -> dict[str, Array]:
    """Return the arrays with batched ones cut to a part of the batch."""
    return {name: array[part] if op.named[name].batched else array for name, array in arrays.items()}


def _cut(answer: Expected, part: slice) -> Expected:
    """Return the answer for some rows; all its arrays get the value's shape."""
    arrays = (
        answer.value,
        answer.error_scale,
        answer.mean_error_scale,
        answer.abs_sum,
        answer.beyond_float32,
    )
    return Expected(
        *(None if array is None else np.broadcast_to(array, answer.value.shape)[part] for array in arrays)  # type: ignore[arg-type]
    )


def rounded_to(value: Float64Array, dtype: str) -> Float64Array:
    """Round to a storage type, to nearest even; int8 and float8 saturate. Return float64."""
    if dtype == "float32":
        return value.astype(np.float32).astype(np.float64)
    if dtype == "int8":
        return np.clip(np.rint(value), -127, 127)
    if dtype in INTEGERS:
        return np.rint(value)
    if dtype.startswith("float8"):
        largest = float(finfo(dtype).max)
        value = np.clip(value, -largest, largest)
    return value.astype(DTYPES[dtype]).astype(np.float64)


def _finite_or_nan(array: Array) -> Array:
    return np.where(np.isfinite(array), array, np.nan)


def _deviations(one: OutputComparison, got: Array, answer: Expected) -> Deviations:
    value, dtype, allowed = answer.value, one.dtype, one.allowed
    wide = got.astype(np.float64)
    if one.any_non_finite:
        value = _finite_or_nan(value)
        wide = np.where(np.isnan(value), _finite_or_nan(wide), wide)
    # NaN and Inf in float64 have to be the same in the output, including the sign; int8 has neither.
    counted = np.isfinite(value)
    known = counted if dtype in INTEGERS else np.ones(value.shape, dtype=bool)
    if answer.beyond_float32 is not None:
        counted, known = counted & ~answer.beyond_float32, known & ~answer.beyond_float32
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(wide - value)
        error[wide == value] = 0.0
        limit = _limit(answer, allowed)
        nearest = rounded_to(value, dtype)
        same = (wide == nearest) | (np.isnan(wide) & np.isnan(nearest))
        if dtype == "float32":
            ratio, unequal = np.where(same & ~np.isfinite(nearest), 0.0, _in_units(error, limit)), 0
        else:
            ratio, unequal = _compare_narrow(known & ~same, wide, value, error, limit, dtype)
        # NaN and infinity are wrong if the rounded answer is a number or exceeds the type's range, unless the
        # tolerance exceeds that range too.
        missing = counted & ~np.isfinite(wide) & ~same & (ratio != 0.0)
        stray = known & ~counted & ~same
        error[missing | stray] = np.inf
        # Without a number as tolerance, or as error, the element is not proved right.
        ratio[np.isnan(ratio) | missing | stray] = np.inf
        ratio[~known | (same & ~counted)] = 0.0
        error[~(counted | stray) | (same & ~np.isfinite(nearest))] = 0.0
        vague = _vague(answer, limit, counted, allowed)
    return Deviations(wide, value, error, limit, ratio, counted, missing, stray, unequal, vague)


def _vague(answer: Expected, limit: Array, counted: Array, allowed: ToleranceFactors) -> int:
    """Return the number of elements whose tolerance is as large as they are and as large as their terms.

    Comparing such an element shows nothing. Only a rounded mean makes tolerances that large.
    """
    if not allowed.slope > 0:
        return 0
    size = np.maximum(answer.error_scale, np.abs(answer.value))
    return int((counted & (limit >= size) & (size > DENORMAL)).sum())


def _compare_narrow(
    unlike: Array, wide: Float64Array, value: Float64Array, error: Float64Array, limit: Array, dtype: str
) -> tuple[Float64Array, int]:
    """Return errors in units of a narrow type's tolerance, and the number of elements off without a tie.

    Only `unlike` elements are examined. All others equal the rounded answer and are right, usually nearly
    all.
    """
    at = np.nonzero(unlike)
    got, near, margin = wide[at], value[at], limit[at]
    below, above = _ends(near, margin, dtype)
    tolerated = _reach(near, below, above)
    if dtype in INTEGERS:
        # An integer that does not depend on rounding gets half a step, so that an error of one step is 2.
        tolerated = np.where(tolerated == 0.0, 0.5, tolerated)
    # An error inside the interval is as large as the rounding.
    beyond = _in_units(np.maximum(error[at], np.nextafter(tolerated, np.inf)), tolerated)
    ratio = np.zeros(value.shape)
    ratio[at] = np.where((got >= below) & (got <= above), 0.0, beyond)
    low, high = _ends(near, TIE * margin, dtype)
    return ratio, int((low == high).sum())


def _limit(answer: Expected, allowed: ToleranceFactors) -> Array:
    """Return the tolerance of each element, without a narrow type's rounding."""
    limit = allowed.base * answer.error_scale
    # A term with the factor 0 is omitted, since its scale can be infinite, as in a constant row of 1e38.
    if allowed.slope > 0:
        limit = limit + allowed.slope * answer.mean_error_scale
    if answer.abs_sum is not None and allowed.adding > 0:
        limit = limit + allowed.adding * answer.abs_sum
    if allowed.base > 0:
        limit += DENORMAL
    return limit


def _in_units(error: Float64Array, limit: Array) -> Float64Array:
    """Return error / limit, and 0 for an error of 0 with a tolerance of 0."""
    return np.where(error == 0.0, 0.0, error / np.maximum(limit, np.finfo(np.float64).tiny))


def _ends(value: Float64Array, limit: Array, dtype: str) -> tuple[Float64Array, Float64Array]:
    """Return the smallest and the largest tolerated value of a narrow type."""
    return rounded_to(np.asarray(value - limit), dtype), rounded_to(np.asarray(value + limit), dtype)


def _reach(value: Float64Array, below: Float64Array, above: Float64Array) -> Float64Array:
    """Return the larger distance from a value to the ends of its interval."""
    return np.maximum(np.abs(below - value), np.abs(above - value))
