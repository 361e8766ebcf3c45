"""Accuracy: one result held against the float64 answer, with a tolerance that has a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from webnorm.errors import check_kind
from webnorm.kernels import expression
from webnorm.kernels.render import Shader
from webnorm.norms.parts import in_parts
from webnorm.norms.problem import DTYPES, Array, finfo
from webnorm.norms.reference import Answer, Answers, Float64Array

# Half an ulp of 1.0 in float32.
UNIT_ROUNDOFF = 2.0**-24
# Error of a normalised element in units of max(1, |x̂|) when no accumulator adds more than 64 terms one
# after another and the mean has two words. The worst measured over means up to 1e6 standard deviations is
# 1.9e-6; half an ulp of an outlier's x̂ = sqrt(N) alone is 3.8e-6 absolute, hence the relative part.
HI_LO_TOLERANCE = 2e-6
SERIAL_TERMS = 64
# A mean that is rounded to float32 is off by up to half an ulp, and by about sqrt(terms) such roundings
# where terms are added one after another; the factor 4 covers the spread seen over the corpus. Where all of
# them may go the same way, as in a plain sum of equal values, the header says how many times that it is.
ROUNDED_MEAN_FACTOR = 4.0
# A gradient's element is made from several normalised ones: rstd, x̂ and the row's two means each carry the
# error of one, and the sums over rows are taken to be four standard deviations from their mean at most.
GRADIENT_FACTOR = 4.0
# h is a sum of two or three, each rounded once to float32; scale_inv is one division.
SUM_TOLERANCE = 2.0 * UNIT_ROUNDOFF
# The share of a rounded output's elements that must be the float64 answer, rounded: the others may be its
# neighbours where the answer lies within the float32 tolerance of a rounding boundary.
EQUAL_SHARE = 0.999
# So many are no share of a small output: rows of narrow types hold the same value several times.
FEW = 8
# An answer this near to a boundary, in units of its tolerance, is as good as on it: a constant row gives the
# weights, of which a sixteenth lie half way between two values of float8_e4m3fn. These are no neighbours.
TIE = 0.05
# Where more answers than this lie at boundaries, they are not spread over the type's steps: a few values of a
# coarse x make up the row.
AMBIGUOUS_SHARE = 0.03
# Where an infinity comes in, the order of additions decides between it and NaN.
_NOT_FINITE = ("stats", "dx", "dresidual_bias")
# The second word of a mean is at most this share of the first and of the standard deviation: rounding leaves
# 2^-24 of a sum's terms, many times over.
LOW_WORD = 2.0**-10
# Results this small are left to the adapter, which may flush denormals to zero.
DENORMAL = 2.0**-126


@dataclass(frozen=True)
class Tolerance:
    """Allowed error of an element: base * unit + slope * shaky + adding * summed (see reference.Answer).

    `equal_share` of a rounded output's elements must be equal to the rounded answer. `reason` says in a
    sentence where the numbers come from.
    """

    base: float
    slope: float
    adding: float
    equal_share: float
    reason: str


@dataclass(frozen=True)
class Worst:
    """The element that is furthest beyond, or nearest to, its tolerance."""

    output: str
    index: tuple[int, ...]
    got: float
    expected: float
    error: float
    tolerance: float

    def __str__(self) -> str:
        return (
            f"{self.output}[{', '.join(map(str, self.index))}] is {self.got:.9g}, "
            f"expected {self.expected:.9g}: off by {self.error:.3g}, allowed {self.tolerance:.3g}"
        )


@dataclass(frozen=True)
class Accuracy:
    """Errors of one result, and the `reason` why it is wrong, if it is.

    The errors and `worst` are those of the op's main output, unless another one is wrong. They are against
    the answer before it is rounded to its storage type. `non_finite` counts NaN and Inf where a number was
    expected. Where the answer is NaN or Inf, so has to be the result; but for int8, which has neither.
    """

    max_abs_error: float
    max_rel_error: float
    tolerance: float
    non_finite: int
    worst: Worst | None
    reason: str | None

    @property
    def ok(self) -> bool:
        """Whether it is right: False for anything that cannot be shown to be, NaN included."""
        return self.reason is None


def tolerance(shader: Shader) -> Tolerance:
    """The tolerance that a kernel's header and the problem's size give."""
    check_kind("shader", shader, Shader)
    op = shader.variant.kernel.op
    if op.exact:
        return Tolerance(0.0, 0.0, 0.0, 1.0, "a copy is exact")
    rules, problem = shader.variant.kernel.accuracy, shader.problem
    # No accumulator adds more terms than there are, whatever a header says.
    terms, columns = (
        max(1, min(expression.evaluate(tree, {**shader.names, "rows": problem.rows}), most))
        for tree, most in ((rules.serial_terms, problem.cols), (rules.column_terms, problem.rows))
    )
    rounded = int(expression.evaluate(rules.rounded_mean, shader.names))
    factor = GRADIENT_FACTOR if op.backward else 1.0
    base = factor * HI_LO_TOLERANCE * max(1.0, terms / SERIAL_TERMS)
    roundings = max(rounded, float(np.sqrt(terms))) if rounded else 0.0
    slope = factor * ROUNDED_MEAN_FACTOR * UNIT_ROUNDOFF * roundings
    adding = UNIT_ROUNDOFF * float(np.sqrt(columns)) if op.backward else 0.0
    reason = f"{terms} terms per accumulator" + (
        f", mean rounded to float32: + {slope:.1e}*|mean|/sd" if rounded else ""
    )
    if op.backward:
        reason += f", {columns} rows per accumulator: + {adding:.1e}*sum of sizes"
    exact = not rounded and terms <= SERIAL_TERMS and not op.backward
    return Tolerance(base, slope, adding, EQUAL_SHARE if exact else 0.0, reason)


def assess(
    outputs: Mapping[str, tuple[Array, bool]],
    answers: Answers,
    shader: Shader,
    allowed: Tolerance | None = None,
) -> Accuracy:
    """Hold every output, an array and whether its guard is intact, against its answer, element by element.

    A float32 output may be off by the tolerance. One of a narrower type has to be the answer rounded to that
    type, or a neighbour where the answer is as near to the rounding boundary as the tolerance.
    """
    allowed = allowed or tolerance(shader)
    op, problem = shader.variant.kernel.op, shader.problem
    found = []
    for tensor in op.outputs(problem):
        got, guard_intact = outputs[tensor.name]
        answer = answers[tensor.name]
        if tensor.name == "stats":
            got = _joined_stats(got, op.has_mean)
        dtype = tensor.dtype(problem)
        own = _tolerance_of_h(dtype, problem.options.residual_bias) if tensor.name == "h" else allowed
        found.append(_assess_output(tensor.name, got, answer, dtype, own, guard_intact))
    # The main output speaks for the op unless another one is wrong and it is not.
    return next((accuracy for accuracy in found if not accuracy.ok), found[0])


def _tolerance_of_h(dtype: str, has_bias: bool) -> Tolerance:
    """The sum of two values of a narrow type is exact in float32, unless they lie far apart: rounded once."""
    if dtype == "float32" or has_bias:
        return Tolerance(SUM_TOLERANCE, 0.0, 0.0, 0.0, "two additions in float32")
    return Tolerance(DENORMAL, 0.0, 0.0, 0.0, "one rounding")


def _joined_stats(stats: Array, has_mean: bool) -> Array:
    """The mean's two words added up; NaN where the second is no correction of the first, which others take
    alone.
    """
    if not has_mean:
        return stats
    with np.errstate(invalid="ignore", over="ignore"):
        mean = stats[:, 0].astype(np.float64) + stats[:, 1]
        high, low, rstd = np.abs(stats.astype(np.float64)).T
        mean[low * rstd > LOW_WORD * (high * rstd + 1.0)] = np.nan
    return np.stack([mean, stats[:, 2]], axis=1)


def _finite_or_nan(array: Array) -> Array:
    return np.where(np.isfinite(array), array, np.nan)


def _assess_output(
    name: str, got: Array, answer: Answer, dtype: str, allowed: Tolerance, guard_intact: bool
) -> Accuracy:
    rows, size = len(answer.value), got.size
    cols = answer.value.size // max(rows, 1)
    errors = _together(
        in_parts(
            lambda part: _compare_part(name, part.start, got[part], _cut(answer, part), dtype, allowed),
            rows,
            cols,
        )
    )
    reason = _objection(name, errors, size, allowed, guard_intact)
    if reason is None and errors.unequal > (1.0 - allowed.equal_share) * size + FEW:
        at_boundaries = in_parts(lambda part: _ambiguous(_cut(answer, part), dtype, allowed), rows, cols)
        if sum(at_boundaries) <= AMBIGUOUS_SHARE * size:
            neighbours = f"{errors.unequal} of {size} elements of {name}"
            reason = f"{neighbours} are a neighbour of the answer rounded to {dtype}"
    return Accuracy(
        max_abs_error=errors.max_abs_error,
        max_rel_error=errors.max_rel_error,
        tolerance=errors.worst.tolerance if errors.worst else allowed.base,
        non_finite=errors.non_finite,
        worst=errors.worst,
        reason=reason,
    )


def _cut(answer: Answer, part: slice) -> Answer:
    """The answer for some rows, every array of it as large as the value."""
    arrays = (answer.value, answer.unit, answer.shaky, answer.summed)
    return Answer(
        *(None if array is None else np.broadcast_to(array, answer.value.shape)[part] for array in arrays)  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class _Errors:
    """Errors of some rows; `ratio` is the largest error in units of its tolerance, at `worst`. `stray` counts
    what should not have been finite, or of the other sign.
    """

    ratio: float
    max_abs_error: float
    max_rel_error: float
    non_finite: int
    stray: int
    unequal: int
    worst: Worst | None


def _together(parts: Sequence[_Errors]) -> _Errors:
    """The errors of all rows."""
    largest = max(parts, key=lambda part: part.ratio, default=_Errors(0.0, 0.0, 0.0, 0, 0, 0, None))
    return replace(
        largest,
        max_abs_error=max((part.max_abs_error for part in parts), default=0.0),
        max_rel_error=max((part.max_rel_error for part in parts), default=0.0),
        non_finite=sum(part.non_finite for part in parts),
        stray=sum(part.stray for part in parts),
        unequal=sum(part.unequal for part in parts),
    )


def _objection(name: str, errors: _Errors, size: int, allowed: Tolerance, guard_intact: bool) -> str | None:
    """What is wrong with an output; None where every element is within its tolerance."""
    of_all, first = f"of {size} elements of {name}", f"first {errors.worst}"
    if not guard_intact:
        return f"wrote past the end of {name}: the guard words behind it have changed"
    if errors.non_finite:
        return f"{errors.non_finite} {of_all} are NaN or Inf or were never written, {first}"
    if errors.stray:
        return f"{errors.stray} {of_all} are unlike an answer that is not finite, {first}"
    return None if errors.ratio <= 1.0 else f"{errors.worst} ({allowed.reason})"


def rounded_to(value: Float64Array, dtype: str) -> Float64Array:
    """`value` rounded to a storage type, to nearest even, saturating for int8 and float8, as float64."""
    if dtype == "float32":
        return value.astype(np.float32).astype(np.float64)
    if dtype == "int8":
        return np.clip(np.rint(value), -127, 127)
    if dtype.startswith("float8"):
        largest = float(finfo(dtype).max)
        value = np.clip(value, -largest, largest)
    return value.astype(DTYPES[dtype]).astype(np.float64)


def _compare_part(
    name: str, first: int, got: Array, answer: Answer, dtype: str, allowed: Tolerance
) -> _Errors:
    """`_assess_output` for the rows from `first` on."""
    value = answer.value
    wide = got.astype(np.float64)
    if name in _NOT_FINITE:
        value = _finite_or_nan(value)
        wide = np.where(np.isnan(value), _finite_or_nan(wide), wide)
    # What is no number in float64 has to be none here, and infinity has its sign; int8 has neither.
    counted = np.isfinite(value)
    known = counted if dtype == "int8" else np.ones(value.shape, dtype=bool)
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
        # Where the answer, rounded, is a number or lies beyond the type's range, NaN is none, nor infinity.
        missing = counted & ~np.isfinite(wide) & ~same
        stray = known & ~counted & ~same
        error[missing | stray] = np.inf
        # A limit that is no number shows nothing, and nothing is shown of NaN.
        ratio[np.isnan(ratio) | missing | stray] = np.inf
        ratio[~known | (same & ~counted)] = 0.0
        error[~(counted | stray) | (same & ~np.isfinite(nearest))] = 0.0
        relative = error / np.maximum(1.0, np.abs(value))
        at = np.unravel_index(int(np.argmax(np.where(ratio > 0, ratio, error * 1e-300))), ratio.shape)
        index = (first + int(at[0]), *(int(i) for i in at[1:]))
        worst = _worst(name, index, wide[at], value[at], error[at], limit[at], dtype)
    return _Errors(
        ratio=float(ratio[at]),
        max_abs_error=float(error.max(initial=0.0)),
        max_rel_error=float(relative[counted].max(initial=0.0)),
        non_finite=int(missing.sum()),
        stray=int(stray.sum()),
        unequal=unequal,
        worst=worst if counted[at] or stray[at] else None,
    )


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
    # The size of an error inside the interval is that of the rounding.
    beyond = _in_units(np.maximum(error[at], np.nextafter(tolerated, np.inf)), tolerated)
    ratio = np.zeros(value.shape)
    ratio[at] = np.where((got >= below) & (got <= above), 0.0, beyond)
    low, high = _ends(near, TIE * margin, dtype)
    return ratio, int((low == high).sum())


def _worst(
    name: str, index: tuple[int, ...], got: float, expected: Any, error: float, limit: Any, dtype: str
) -> Worst:
    tolerated = limit if dtype == "float32" else _reach(expected, *_ends(expected, limit, dtype))
    return Worst(name, index, float(got), float(expected), float(error), float(tolerated))


def _limit(answer: Answer, allowed: Tolerance) -> Array:
    """The tolerance of each element, before what a narrow type's rounding adds."""
    limit = allowed.base * answer.unit
    # A factor of 0 leaves the term out: of a constant row of 1e38, `shaky` is infinite.
    if allowed.slope > 0:
        limit = limit + allowed.slope * answer.shaky
    if answer.summed is not None and allowed.adding > 0:
        limit = limit + allowed.adding * answer.summed
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


def _ambiguous(answer: Answer, dtype: str, allowed: Tolerance) -> int:
    """How many answers lie as near to a rounding boundary of the type as the tolerance."""
    with np.errstate(invalid="ignore", over="ignore"):
        limit = _limit(answer, allowed)
        below, above = _ends(answer.value, limit, dtype)
        return int(((below != above) & np.isfinite(below) & np.isfinite(above)).sum())
