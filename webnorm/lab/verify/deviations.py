"""How far every element of an output is from its float64 answer, in units of what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from webnorm.op.blocks import Part, map_row_blocks
from webnorm.op.dtypes import DTYPES, INTEGERS, Array, finfo
from webnorm.op.op import Expected, ExpectedOutputs, Float64Array, Op, Task, ToleranceFactors

# An answer this near to a boundary, in units of its tolerance, is as good as on it: a constant row gives the
# weights, of which a sixteenth lie half way between two values of float8_e4m3fn. These are no neighbours.
TIE = 0.05
# Results this small are left to the adapter, which may flush denormals to zero.
DENORMAL = 2.0**-126


@dataclass(frozen=True)
class OutputComparison:
    """One output of a problem beside its answer: `got` and `answer.value` are of one shape.

    Rows and columns are those of a matrix: elements of the batch, and of each of them. `dtype` is the storage
    type; with `any_non_finite` the order of additions decides between NaN and an infinity.
    """

    name: str
    got: Array
    answer: Expected
    dtype: str
    allowed: ToleranceFactors
    any_non_finite: bool = False

    @property
    def rows(self) -> int:
        """Its rows; the elements of an output that has none."""
        return len(self.answer.value)

    @property
    def cols(self) -> int:
        """Elements of a row."""
        return self.answer.value.size // max(self.rows, 1)

    def map_blocks(self, work: Callable[[slice], Part]) -> list[Part]:
        """What `work` gives for each part of the rows, in order."""
        return map_row_blocks(work, self.rows, self.cols)

    def of(self, part: slice) -> Deviations:
        """The deviations of some of the rows."""
        return _deviations(self, self.got[part], _cut(self.answer, part))

    def ambiguous(self, part: slice) -> int:
        """How many answers of some of the rows lie as near to a rounding boundary of the type as the
        tolerance.
        """
        answer = _cut(self.answer, part)
        with np.errstate(invalid="ignore", over="ignore"):
            below, above = _ends(answer.value, _limit(answer, self.allowed), self.dtype)
            return int(((below != above) & np.isfinite(below) & np.isfinite(above)).sum())


@dataclass(frozen=True)
class Deviations:
    """Of some rows, all arrays of one shape: what was `got` and the answer's `value` in float64, the `error`,
    the `limit` of it before a narrow type's rounding adds to it, and the `ratio` of the two, with all that is
    allowed: above 1 an element is wrong, and infinite where it is no number and should be one, or the other
    way round.

    `counted` tells the answers that are numbers; `missing` what should have been a number, `stray` what
    should not, or has the other sign. `unequal` counts the elements of a narrow type that are a neighbour of
    the rounded answer, which no tie excuses, and `vague` those that may be off by as much as they are.
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
        """What is allowed of one element."""
        value, limit = self.value[at], self.limit[at]
        return float(limit if dtype == "float32" else _reach(value, *_ends(value, limit, dtype)))


def compare_outputs(
    outputs: Mapping[str, tuple[Array, bool]], answers: ExpectedOutputs, task: Task, allowed: ToleranceFactors
) -> Iterator[tuple[OutputComparison, bool]]:
    """Every output of a task beside its answer, the main one first, and whether its guard is intact."""
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
    """Arrays by name, of those that are batched a part of the batch."""
    return {name: array[part] if op.named[name].batched else array for name, array in arrays.items()}


def _cut(answer: Expected, part: slice) -> Expected:
    """The answer for some rows, every array of it as large as the value."""
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
    """`value` rounded to a storage type, to nearest even, saturating for int8 and float8, as float64."""
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
    # What is no number in float64 has to be none here, and infinity has its sign; int8 has neither.
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
        # Where the answer, rounded, is a number or lies beyond the type's range, NaN is none, nor infinity,
        # unless the tolerance reaches beyond that range.
        missing = counted & ~np.isfinite(wide) & ~same & (ratio != 0.0)
        stray = known & ~counted & ~same
        error[missing | stray] = np.inf
        # A limit that is no number shows nothing, and nothing is shown of NaN.
        ratio[np.isnan(ratio) | missing | stray] = np.inf
        ratio[~known | (same & ~counted)] = 0.0
        error[~(counted | stray) | (same & ~np.isfinite(nearest))] = 0.0
        vague = _vague(answer, limit, counted, allowed)
    return Deviations(wide, value, error, limit, ratio, counted, missing, stray, unequal, vague)


def _vague(answer: Expected, limit: Array, counted: Array, allowed: ToleranceFactors) -> int:
    """How many elements may be off by as much as they are, and by as much as what they are made of: to hold
    such an element against its answer shows nothing. Only a mean that is rounded is allowed so much.
    """
    if not allowed.slope > 0:
        return 0
    size = np.maximum(answer.error_scale, np.abs(answer.value))
    return int((counted & (limit >= size) & (size > DENORMAL)).sum())


def _compare_narrow(
    unlike: Array, wide: Float64Array, value: Float64Array, error: Float64Array, limit: Array, dtype: str
) -> tuple[Float64Array, int]:
    """Errors in units of what is tolerated of a narrow type, and how many elements no tie excuses.

    What is the answer rounded, and not `unlike` it, is right whatever the tolerance, and that is nearly
    everything.
    """
    at = np.nonzero(unlike)
    got, near, margin = wide[at], value[at], limit[at]
    below, above = _ends(near, margin, dtype)
    tolerated = _reach(near, below, above)
    if dtype in INTEGERS:
        # One that no rounding decides is compared with half a step: an error of one step has the ratio 2.
        tolerated = np.where(tolerated == 0.0, 0.5, tolerated)
    # The size of an error inside the interval is that of the rounding.
    beyond = _in_units(np.maximum(error[at], np.nextafter(tolerated, np.inf)), tolerated)
    ratio = np.zeros(value.shape)
    ratio[at] = np.where((got >= below) & (got <= above), 0.0, beyond)
    low, high = _ends(near, TIE * margin, dtype)
    return ratio, int((low == high).sum())


def _limit(answer: Expected, allowed: ToleranceFactors) -> Array:
    """The tolerance of each element, before what a narrow type's rounding adds."""
    limit = allowed.base * answer.error_scale
    # A factor of 0 leaves the term out: of a constant row of 1e38, its scale is infinite.
    if allowed.slope > 0:
        limit = limit + allowed.slope * answer.mean_error_scale
    if answer.abs_sum is not None and allowed.adding > 0:
        limit = limit + allowed.adding * answer.abs_sum
    if allowed.base > 0:
        limit += DENORMAL
    return limit


def _in_units(error: Float64Array, limit: Array) -> Float64Array:
    """Error / limit, where a tolerance of nothing is met by an error of nothing."""
    return np.where(error == 0.0, 0.0, error / np.maximum(limit, np.finfo(np.float64).tiny))


def _ends(value: Float64Array, limit: Array, dtype: str) -> tuple[Float64Array, Float64Array]:
    """What is tolerated at least and at most of a narrow type."""
    return rounded_to(np.asarray(value - limit), dtype), rounded_to(np.asarray(value + limit), dtype)


def _reach(value: Float64Array, below: Float64Array, above: Float64Array) -> Float64Array:
    """How far the ends of an interval are from a value inside it, at most."""
    return np.maximum(np.abs(below - value), np.abs(above - value))
