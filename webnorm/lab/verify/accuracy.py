"""Accuracy: compares outputs with the float64 answers, with a derived tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from webnorm.errors import check_kind
from webnorm.kernels.rendering.render import Shader
from webnorm.lab.verify.deviations import OutputComparison, compare_outputs
from webnorm.op import expression
from webnorm.op.dtypes import Array
from webnorm.op.op import ExpectedOutputs, HeaderTerms, Task, ToleranceFactors

# A tolerance this many times larger than `auto`'s kernels have gives a warning.
LOOSE = 10.0
# A share is not meaningful for this many elements: rows of narrow types contain the same value several times.
FEW = 8
# Reasons why a result is neither right nor wrong.
VAGUE = "not compared: the header's tolerance is as large as the answers"
WITHOUT_NUMBERS = "not compared: all answers are NaN or Inf, which int8 cannot represent"
# If more answers lie at rounding boundaries, they are not spread over the type's steps: a coarse x makes rows
# of few values.
AMBIGUOUS_SHARE = 0.03


@dataclass(frozen=True)
class WorstElement:
    """The element that is furthest beyond its tolerance, or closest to it."""

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
    """The errors of one result, and the `reason` if it is wrong.

    The errors and `worst` belong to the op's main output, unless another output is wrong. They are relative
    to the answer before rounding to its storage type. `allowed` is the tolerance of the element with
    `max_abs_error`, and `tolerance` the tolerance of `worst`. `non_finite` counts NaN and Inf where a number
    was expected. If an answer is NaN or Inf, the result has to be too, except for int8, which has neither.
    `not_compared` is the reason why a comparison shows nothing: the tolerance of at least half of an output's
    elements is as large as they are, or int8 cannot represent the answers.
    """

    max_abs_error: float
    max_rel_error: float
    tolerance: float
    non_finite: int
    worst: WorstElement | None
    reason: str | None
    not_compared: str | None = None
    allowed: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the result is right; NaN and anything unproved count as wrong."""
        return self.reason is None


def tolerance(shader: Shader) -> ToleranceFactors:
    """Return the tolerance from a kernel's header and the problem's size."""
    check_kind("shader", shader, Shader)
    op, rules, problem = shader.variant.kernel.op, shader.variant.kernel.accuracy, shader.problem
    if op.is_copy:
        return ToleranceFactors(0.0, 0.0, 0.0, 1.0, "a copy is exact")
    names = shader.names_for(problem.batch_size)
    # Both have their fields in the same order.
    terms = HeaderTerms(*(int(expression.evaluate(tree, names)) for tree in vars(rules).values()))
    found: ToleranceFactors = op.hook("tolerance")(terms, problem)
    return found


def loose_tolerance_warning(shader: Shader) -> str | None:
    """Return a warning if a header's tolerance is far larger than the op's best kernels need, or None.

    The best kernels are, for example, `auto`'s. With a slope the allowed error has no limit.
    """
    own = tolerance(shader)
    if not own.best_of or (not own.slope and own.base <= LOOSE * own.best):
        return None
    return (
        f"the header's tolerance is loose ({own.reason}): results that pass may be far off; "
        f"the tolerance of {own.best_of} is {own.best:.0e}"
    )


def assess(
    outputs: Mapping[str, tuple[Array, bool]],
    answers: ExpectedOutputs,
    shader: Shader,
    allowed: ToleranceFactors | None = None,
) -> Accuracy:
    """Compare every output with its answer, element by element.

    `outputs` contains each array with true if its guard is intact. A float32 output may be off by the
    tolerance. An output of a narrower type has to be the answer rounded to that type. A neighbouring value is
    right too if the distance of the answer to the rounding boundary is within the tolerance.
    """
    allowed = allowed or tolerance(shader)
    task = Task(shader.variant.kernel.op, shader.problem)
    found = [assess_output(*one) for one in compare_outputs(outputs, answers, task, allowed)]
    wrong = [accuracy for accuracy in found if not accuracy.ok]
    # The main output represents the op, unless only another one is wrong. Outputs that were never written
    # come first, because others are compared with them: y with the norm of the stored h.
    main = next((accuracy for accuracy in wrong if accuracy.non_finite), next(iter(wrong), found[0]))
    return replace(main, not_compared=next(filter(None, (each.not_compared for each in found)), None))


def assess_output(one: OutputComparison, guard_intact: bool = True) -> Accuracy:
    """Compare one output with its answer; see `assess`."""
    size, allowed = one.got.size, one.allowed
    errors = _together(one.map_blocks(lambda part: _errors(one, part)))
    reason = _objection(one.name, errors, size, allowed, guard_intact)
    if reason is None and too_many_neighbours(one, errors.unequal):
        neighbours = f"{errors.unequal} of {size} elements of {one.name}"
        reason = f"{neighbours} are one step off the answer rounded to {one.dtype}"
    return Accuracy(
        max_abs_error=errors.max_abs_error,
        max_rel_error=errors.max_rel_error,
        allowed=errors.allowed,
        tolerance=errors.worst.tolerance if errors.worst else allowed.base,
        non_finite=errors.non_finite,
        worst=errors.worst,
        reason=reason,
        not_compared=_not_compared(one, errors),
    )


def _not_compared(one: OutputComparison, errors: _Errors) -> str | None:
    """Return the reason why a comparison of an output shows nothing, or None."""
    if errors.counted:
        return VAGUE if 2 * errors.vague >= errors.counted else None
    return WITHOUT_NUMBERS if one.dtype == "int8" and one.got.size else None


def too_many_neighbours(one: OutputComparison, unequal: int) -> bool:
    """Return true if more elements than by chance are `unequal` to the rounded answer within tolerance."""
    size = one.got.size
    if unequal <= (1.0 - one.allowed.equal_share) * size + FEW:
        return False
    return sum(one.map_blocks(one.ambiguous)) <= AMBIGUOUS_SHARE * size


@dataclass(frozen=True)
class _Errors:
    """The errors of some rows; `ratio` is the largest error in units of its tolerance, at `worst`.

    `stray` counts elements that should be NaN or Inf, or have the other sign. For `counted` and `vague` see
    Deviations.
    """

    ratio: float
    max_abs_error: float
    allowed: float
    max_rel_error: float
    non_finite: int
    stray: int
    unequal: int
    counted: int
    vague: int
    worst: WorstElement | None


_COUNTS = ("non_finite", "stray", "unequal", "counted", "vague")
_NO_ERRORS = _Errors(0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0, None)


def _together(parts: Sequence[_Errors]) -> _Errors:
    """Merge the errors of parts into those for all rows."""
    largest = max(parts, key=lambda part: part.ratio, default=_NO_ERRORS)
    furthest = max(parts, key=lambda part: part.max_abs_error, default=_NO_ERRORS)
    return replace(
        largest,
        max_abs_error=furthest.max_abs_error,
        allowed=furthest.allowed,
        max_rel_error=max((part.max_rel_error for part in parts), default=0.0),
        **{name: sum(getattr(part, name) for part in parts) for name in _COUNTS},
    )


def _objection(
    name: str, errors: _Errors, size: int, allowed: ToleranceFactors, guard_intact: bool
) -> str | None:
    """Return the reason why an output is wrong; None if every element is within its tolerance."""
    of_all, first = f"of {size} elements of {name}", f"first {errors.worst}"
    if not guard_intact:
        return f"wrote past the end of {name}: the guard words after it have changed"
    if errors.non_finite:
        return f"{errors.non_finite} {of_all} are NaN or Inf or were never written, {first}"
    if errors.stray:
        return f"{errors.stray} {of_all} differ from an answer that is NaN or Inf, {first}"
    if errors.ratio <= 1.0:
        return None
    # A tolerance of 0 has no derivation: an integer that does not depend on rounding.
    exact = errors.worst is not None and errors.worst.tolerance == 0.0
    return str(errors.worst) if exact else f"{errors.worst} ({allowed.reason})"


def _errors(one: OutputComparison, part: slice) -> _Errors:
    """Return the errors of some rows."""
    found = one.of(part)
    ratio, error = found.ratio, found.error
    with np.errstate(invalid="ignore", over="ignore"):
        relative = error / np.maximum(1.0, np.abs(found.value))
        flat = int(np.argmax(np.where(ratio > 0, ratio, error * 1e-300)))
        at, most = (
            tuple(int(i) for i in np.unravel_index(place, ratio.shape))
            for place in (flat, int(np.argmax(error)))
        )
        allowed = found.tolerated(most, one.dtype)
        got, value, off = (float(each[at]) for each in (found.got, found.value, error))
        worst = WorstElement(
            one.name, (part.start + at[0], *at[1:]), got, value, off, found.tolerated(at, one.dtype)
        )
    return _Errors(
        ratio=float(ratio[at]),
        max_abs_error=float(error[most]),
        allowed=allowed,
        max_rel_error=float(relative[found.counted].max(initial=0.0)),
        non_finite=int(found.missing.sum()),
        stray=int(found.stray.sum()),
        unequal=found.unequal,
        counted=int(found.counted.sum()),
        vague=found.vague,
        worst=worst if found.counted[at] or found.stray[at] else None,
    )
