"""Accuracy: one result held against the float64 answer, with a tolerance that has a reason."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from webnorm import expression, reference
from webnorm.problem import Array
from webnorm.reference import Float64Array
from webnorm.render import Shader

# Half an ulp of 1.0 in float32.
UNIT_ROUNDOFF = 2.0**-24
# Error of a normalised element in units of max(1, |x̂|) when no accumulator adds more than 64 terms one
# after another and the mean has two words. The worst measured over means up to 1e6 standard deviations is
# 1.9e-6; half an ulp of an outlier's x̂ = sqrt(N) alone is 3.8e-6 absolute, hence the relative part.
HI_LO_TOLERANCE = 2e-6
SERIAL_TERMS = 64
# A mean that is rounded to float32 is off by up to half an ulp, and by about sqrt(terms) such roundings
# where terms are added one after another; the factor 4 covers the spread seen over the corpus.
ROUNDED_MEAN_FACTOR = 4.0
# Results this small are left to the adapter, which may flush denormals to zero.
_DENORMAL = 2.0**-126
# Rows are compared in parts that stay in a core's cache.
_PART_BYTES = 1 << 22


@dataclass(frozen=True)
class Tolerance:
    """Allowed error of row i in units of the element's scale (see `assess`): base + condition[i] * slope.

    `reason` says in a sentence where the numbers come from.
    """

    base: float
    slope: float
    reason: str


@dataclass(frozen=True)
class Worst:
    """The element that is furthest beyond, or nearest to, its tolerance."""

    row: int
    col: int
    got: float
    expected: float
    error: float
    tolerance: float

    def __str__(self) -> str:
        return (
            f"[{self.row}, {self.col}] is {self.got:.9g}, expected {self.expected:.9g}: "
            f"off by {self.error:.3g}, allowed {self.tolerance:.3g}"
        )


@dataclass(frozen=True)
class Accuracy:
    """Errors of one result. `ok` is False for anything that cannot be shown to be right, NaN included.

    `non_finite` counts NaN and Inf where a number was expected; rows whose answer is not finite are left out.
    """

    ok: bool
    max_abs_error: float
    max_rel_error: float
    tolerance: float
    non_finite: int
    worst: Worst | None
    reason: str | None


def tolerance(shader: Shader) -> Tolerance:
    """The tolerance that a kernel's header and the problem's size give."""
    if shader.variant.kernel.op.exact:
        return Tolerance(0.0, 0.0, "a copy is exact")
    rules = shader.variant.kernel.accuracy
    terms = max(1, expression.evaluate(rules.serial_terms, shader.names))
    rounded = bool(expression.evaluate(rules.rounded_mean, shader.names))
    base = HI_LO_TOLERANCE * max(1.0, terms / SERIAL_TERMS)
    slope = ROUNDED_MEAN_FACTOR * UNIT_ROUNDOFF * float(np.sqrt(terms)) if rounded else 0.0
    reason = f"{terms} terms per accumulator" + (
        f", mean rounded to float32: + {slope:.1e}*|mean|/sd" if rounded else ""
    )
    return Tolerance(base, slope, reason)


def assess(
    got: Array,
    expected: Float64Array,
    arrays: Mapping[str, Array],
    eps: float,
    allowed: Tolerance,
    guard_intact: bool = True,
) -> Accuracy:
    """Hold `got` (rows, cols) against `expected`, element by element.

    An element's scale is max(1, |x̂|)·|weight| + |bias|, the size of what was added up to make it, and
    max(1, |x|) without weight and bias. Its error may be the row's tolerance times its scale.
    """
    rows, cols = expected.shape
    at_once = max(1, _PART_BYTES // (8 * max(cols, 1)))

    def part_of(first: int) -> _Part:
        part = slice(first, min(first + at_once, rows))
        return _compare_part(first, got[part], expected[part], arrays["x"][part], arrays, eps, allowed)

    # NumPy lets go of the interpreter's lock in its loops, so the parts of a large array take all cores.
    with ThreadPoolExecutor() as pool:
        parts = list(pool.map(part_of, range(0, rows, at_once)))
    non_finite = sum(part.non_finite for part in parts)
    largest = max(parts, key=lambda part: part.ratio, default=_Part(0.0, 0.0, 0.0, 0, None))
    worst = largest.worst
    reason = None
    if not guard_intact:
        reason = "wrote past the end of its output: the guard words behind it have changed"
    elif non_finite:
        reason = f"{non_finite} of {got.size} elements are NaN or Inf or were never written, first {worst}"
    elif not largest.ratio <= 1.0:
        reason = f"{worst} ({allowed.reason})"
    return Accuracy(
        ok=reason is None,
        max_abs_error=max((part.max_abs_error for part in parts), default=0.0),
        max_rel_error=max((part.max_rel_error for part in parts), default=0.0),
        tolerance=worst.tolerance if worst else allowed.base,
        non_finite=non_finite,
        worst=worst,
        reason=reason,
    )


@dataclass(frozen=True)
class _Part:
    """Errors of some rows; `ratio` is the largest error in units of its tolerance, at `worst`."""

    ratio: float
    max_abs_error: float
    max_rel_error: float
    non_finite: int
    worst: Worst | None


def _compare_part(
    first: int,
    got: Array,
    answer: Float64Array,
    x: Array,
    arrays: Mapping[str, Array],
    eps: float,
    allowed: Tolerance,
) -> _Part:
    """`assess` for the rows from `first` on."""
    weight = np.abs(arrays["weight"].astype(np.float64)) if "weight" in arrays else 1.0
    bias = arrays["bias"].astype(np.float64) if "bias" in arrays else 0.0
    wide = got.astype(np.float64)
    counted = np.isfinite(answer)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(wide - answer)
        error[~counted] = 0.0
        missing = counted & ~np.isfinite(wide)
        error[missing] = np.inf
        limit = np.full((wide.shape[0], 1), allowed.base)
        if allowed.slope:
            limit += allowed.slope * reference.condition(x, eps)[:, None]
        limit = limit * (np.maximum(weight, np.abs(answer - bias)) + np.abs(bias))
        if allowed.base > 0:
            limit += _DENORMAL
        # A tolerance of nothing is met by an error of nothing.
        ratio = np.where(error == 0.0, 0.0, error / np.maximum(limit, np.finfo(np.float64).tiny))
        ratio[~counted] = 0.0
        relative = error / np.maximum(1.0, np.abs(answer))
    row, col = (int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    worst = Worst(
        first + row,
        col,
        float(wide[row, col]),
        float(answer[row, col]),
        float(error[row, col]),
        float(np.broadcast_to(limit, ratio.shape)[row, col]),
    )
    return _Part(
        ratio=float(ratio[row, col]),
        max_abs_error=float(error.max(initial=0.0)),
        max_rel_error=float(relative[counted].max(initial=0.0)),
        non_finite=int(missing.sum()),
        worst=worst if counted[row, col] else None,
    )
