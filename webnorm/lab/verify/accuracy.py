"""Accuracy of one result: a comparison with the float64 reference, and a tolerance with a reason."""

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
    """The element that exceeds its tolerance the most, or comes closest to it."""

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
    """The errors of one result, from `webnorm.assess`.

    Errors are distances to the float64 answer before it is rounded. They belong to the op's main output,
    unless another output is wrong.

    Attributes
    ----------
    max_abs_error : float
        The largest absolute error.
    max_rel_error : float
        The largest relative error: the error divided by max(1, abs(answer)).
    allowed : float
        The tolerance of the element with `max_abs_error`.
    worst : WorstElement or None
        The element that exceeds its tolerance the most, or comes closest to it.
    tolerance : float
        The tolerance of `worst`.
    non_finite : int
        The number of NaN and Inf where the answer is a number.
    reason : str or None
        The reason why the result is wrong; None if it is right.
    not_compared : str or None
        The reason why the comparison proves nothing. Half of an output's elements have a tolerance as large
        as the answer, or an int8 output would have to store NaN or Inf.
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
        """True if the result is right. NaN where the answer is a number is wrong."""
        return self.reason is None


def tolerance(shader: Shader) -> ToleranceFactors:
    """Return the tolerance of a kernel for a problem, derived from its header and the problem's size.

    Parameters
    ----------
    shader : Shader
        A shader from `webnorm.render_shader`.

    Returns
    -------
    ToleranceFactors
        The allowed error of an element is base * error_scale + slope * mean_error_scale + adding * abs_sum,
        with the scales from the op's reference.

    Examples
    --------
    >>> import webnorm
    >>> kernel = webnorm.select(webnorm.discover(), "copy", "copy")
    >>> problem = kernel.op.problem(4, 8)
    >>> traits = webnorm.find_adapter().traits
    >>> variant = webnorm.default_variant(kernel, problem, traits)
    >>> webnorm.tolerance(webnorm.render_shader(variant, problem, "native", traits)).reason
    'a copy is exact'
    """
    check_kind("shader", shader, Shader)
    op, problem = shader.variant.kernel.op, shader.problem
    if op.is_copy:
        return ToleranceFactors(0.0, 0.0, 0.0, 1.0, "a copy is exact")
    found: ToleranceFactors = op.hook("tolerance")(header_terms(shader), problem)
    return found


def header_terms(shader: Shader) -> HeaderTerms:
    """Return the numbers of terms and roundings that a kernel's header declares, for the shader's problem."""
    names = shader.names_for(shader.problem.batch_size)
    # Both have their fields in the same order.
    trees = vars(shader.variant.kernel.accuracy).values()
    return HeaderTerms(*(int(expression.evaluate(tree, names)) for tree in trees))


def loose_tolerance_warning(shader: Shader) -> str | None:
    """Return a warning if a header's tolerance is far looser than the best kernels of the op need.

    A slope lets the allowed error grow without a bound. The result is None if the tolerance is not loose.
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
    """Compare the outputs of a shader with their float64 answers, element by element.

    A float32 element may differ by the tolerance. An element of a narrower type must be the answer rounded to
    that type. It may be a neighbor if the answer is closer to the rounding boundary than the tolerance.

    Parameters
    ----------
    outputs : mapping of str to (numpy.ndarray, bool)
        Each output, and True if its guard words are unchanged: `Outputs.read_all()`.
    answers : dict of str to Expected
        The float64 answers: `op.reference(arrays, problem)`.
    shader : Shader
        The shader that wrote the outputs.
    allowed : ToleranceFactors, optional
        The tolerance. Default: `webnorm.tolerance(shader)`.

    Returns
    -------
    Accuracy
        The errors, and the reason if an output is wrong.

    Examples
    --------
    >>> import webnorm
    >>> kernel = webnorm.select(webnorm.discover(), "naive")
    >>> problem = webnorm.Problem(rows=4, cols=8)
    >>> traits = webnorm.find_adapter().traits
    >>> variant = webnorm.default_variant(kernel, problem, traits)
    >>> shader = webnorm.render_shader(variant, problem, "native", traits)
    >>> arrays = webnorm.make_inputs(kernel.op, problem)
    >>> answers = kernel.op.reference(arrays, problem)
    >>> rounded = answers["y"].value.astype("float32")
    >>> webnorm.assess({"y": (rounded, True)}, answers, shader).ok
    True
    >>> webnorm.assess({"y": (rounded + 1, True)}, answers, shader).ok
    False
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
    """Compare one output with its answer: `assess` for a single output."""
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
    """Return the reason why the comparison of an output proves nothing; None if it proves something."""
    if errors.counted:
        return VAGUE if 2 * errors.vague >= errors.counted else None
    return WITHOUT_NUMBERS if one.dtype == "int8" and one.got.size else None


def too_many_neighbours(one: OutputComparison, unequal: int) -> bool:
    """Return True if more elements than chance allows differ from the rounded answer."""
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
