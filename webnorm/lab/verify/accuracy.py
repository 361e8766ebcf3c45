"""Accuracy: one result held against the float64 answer, with a tolerance that has a reason."""

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

# A tolerance so many times that of the kernels that `auto` picks is worth a warning.
LOOSE = 10.0
# So many are no share of a small output: rows of narrow types hold the same value several times.
FEW = 8
# Why nothing speaks against a result, and nothing for it.
VAGUE = "not compared: the tolerance that its header declares is as large as the answers"
WITHOUT_NUMBERS = "not compared: no answer is a number, and int8 has nothing else"
# Where more answers than this lie at boundaries, they are not spread over the type's steps: a few values of a
# coarse x make up the row.
AMBIGUOUS_SHARE = 0.03


@dataclass(frozen=True)
class WorstElement:
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

    `allowed` is the tolerance of the element that has `max_abs_error`, `tolerance` that of `worst`. The
    errors and `worst` are those of the op's main output, unless another one is wrong. They are against
    the answer before it is rounded to its storage type. `non_finite` counts NaN and Inf where a number was
    expected. Where the answer is NaN or Inf, so has to be the result; but for int8, which has neither.
    `not_compared` says why that shows nothing: at least half of an output's elements may be off by as much
    as they are, or int8 is to hold what is no number.
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
        """Whether it is right: False for anything that cannot be shown to be, NaN included."""
        return self.reason is None


def tolerance(shader: Shader) -> ToleranceFactors:
    """The tolerance that a kernel's header and the problem's size give."""
    check_kind("shader", shader, Shader)
    op, rules, problem = shader.variant.kernel.op, shader.variant.kernel.accuracy, shader.problem
    if op.is_copy:
        return ToleranceFactors(0.0, 0.0, 0.0, 1.0, "a copy is exact")
    names = shader.names_for(problem.batch_size)
    # Both have them in the same order.
    terms = HeaderTerms(*(int(expression.evaluate(tree, names)) for tree in vars(rules).values()))
    found: ToleranceFactors = op.hook("tolerance")(terms, problem)
    return found


def loose_tolerance_warning(shader: Shader) -> str | None:
    """Say how a header's tolerance is far looser than that of the op's best kernels, such as those that
    `auto` picks; None where it is not. With a slope the allowed error grows to any size.
    """
    own = tolerance(shader)
    if not own.best_of or (not own.slope and own.base <= LOOSE * own.best):
        return None
    return (
        f"the tolerance of its header is loose ({own.reason}): what passes may be far off; "
        f"{own.best_of} are held to {own.best:.0e}"
    )


def assess(
    outputs: Mapping[str, tuple[Array, bool]],
    answers: ExpectedOutputs,
    shader: Shader,
    allowed: ToleranceFactors | None = None,
) -> Accuracy:
    """Hold every output, an array and whether its guard is intact, against its answer, element by element.

    A float32 output may be off by the tolerance. One of a narrower type has to be the answer rounded to that
    type, or a neighbour where the answer is as near to the rounding boundary as the tolerance.
    """
    allowed = allowed or tolerance(shader)
    task = Task(shader.variant.kernel.op, shader.problem)
    found = [assess_output(*one) for one in compare_outputs(outputs, answers, task, allowed)]
    wrong = [accuracy for accuracy in found if not accuracy.ok]
    # The main output speaks for the op unless another one is wrong and it is not; what was never written goes
    # first, since others are held against it: y against the norm of the h that was stored.
    main = next((accuracy for accuracy in wrong if accuracy.non_finite), next(iter(wrong), found[0]))
    return replace(main, not_compared=next(filter(None, (each.not_compared for each in found)), None))


def assess_output(one: OutputComparison, guard_intact: bool = True) -> Accuracy:
    """`assess` for one output."""
    size, allowed = one.got.size, one.allowed
    errors = _together(one.map_blocks(lambda part: _errors(one, part)))
    reason = _objection(one.name, errors, size, allowed, guard_intact)
    if reason is None and too_many_neighbours(one, errors.unequal):
        neighbours = f"{errors.unequal} of {size} elements of {one.name}"
        reason = f"{neighbours} are a neighbour of the answer rounded to {one.dtype}"
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
    """Why an output shows nothing, right or wrong."""
    if errors.counted:
        return VAGUE if 2 * errors.vague >= errors.counted else None
    return WITHOUT_NUMBERS if one.dtype == "int8" and one.got.size else None


def too_many_neighbours(one: OutputComparison, unequal: int) -> bool:
    """Whether more elements than chance has are `unequal` to the rounded answer, though within tolerance."""
    size = one.got.size
    if unequal <= (1.0 - one.allowed.equal_share) * size + FEW:
        return False
    return sum(one.map_blocks(one.ambiguous)) <= AMBIGUOUS_SHARE * size


@dataclass(frozen=True)
class _Errors:
    """Errors of some rows; `ratio` is the largest error in units of its tolerance, at `worst`. `stray` counts
    what should not have been finite, or of the other sign; for `counted` and `vague` see Deviations.
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
    """The errors of all rows."""
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
    """What is wrong with an output; None where every element is within its tolerance."""
    of_all, first = f"of {size} elements of {name}", f"first {errors.worst}"
    if not guard_intact:
        return f"wrote past the end of {name}: the guard words behind it have changed"
    if errors.non_finite:
        return f"{errors.non_finite} {of_all} are NaN or Inf or were never written, {first}"
    if errors.stray:
        return f"{errors.stray} {of_all} are unlike an answer that is not finite, {first}"
    if errors.ratio <= 1.0:
        return None
    # Nothing is derived where nothing is allowed: an integer that no rounding decides.
    exact = errors.worst is not None and errors.worst.tolerance == 0.0
    return str(errors.worst) if exact else f"{errors.worst} ({allowed.reason})"


def _errors(one: OutputComparison, part: slice) -> _Errors:
    """The errors of some rows."""
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
