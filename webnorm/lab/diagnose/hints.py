"""Hints at the cause of a wrong output: formulas that it fits, and patterns of its wrong elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from webnorm.errors import SourceLocation
from webnorm.lab.diagnose.heat_map import (
    ErrorLocations,
    error_locations,
    locations_text,
    never_written,
    short_text,
    wrong_elements,
)
from webnorm.lab.verify.accuracy import too_many_neighbours
from webnorm.lab.verify.deviations import OutputComparison, batch_part, compare_outputs, rounded_to
from webnorm.op.dtypes import INTEGERS, Array, finfo
from webnorm.op.op import Expected, ExpectedOutputs, Task, ToleranceFactors

# Rows and columns in hints refer to the output as a matrix (OutputComparison).
Kind = Literal["poison", "guard", "unsteady", "race", "loop", "formula", "statistics", "place", "precision"]
# Elements of the rows that formulas are tried on; all formulas together need tens of megabytes for them.
_MOST_ELEMENTS = 1 << 16
# The largest distance to a formula that an output fits "but for rounding", in units of the tolerance. The
# tolerance belongs to the right formula, whose numbers can be smaller.
_NEAR = 8.0
# The distance to the right answer has to be this many times the distance to a formula.
_FAR = 10.0
# Most formulas are ruled out by this many columns.
_GLANCE = 32
# One in this many wrong elements of a narrow type may look like poison by chance.
_CHANCE = 500
# If more formulas fit, none is named.
_MOST_FORMULAS = 4
# Rows and columns are named if this share of their elements is wrong.
_FILLED = 0.9
# Errors up to this many times the tolerance are errors of the last digits.
_DIGITS = 50.0
# The largest output whose answers are searched for a pattern.
_MOST_SORTED = 1 << 22


@dataclass(frozen=True)
class Hint:
    """A hint at the cause of a wrong result: a sentence without full stop, and its place in the template."""

    kind: Kind
    text: str
    place: SourceLocation | None = None


@dataclass(frozen=True)
class WrongResult:
    """A wrong result: its outputs and the float64 answers.

    `outputs` contains each output with true if its guard is intact. `arrays` are the inputs, and `again`
    contains the outputs of a second run on the same inputs.
    """

    task: Task
    arrays: Mapping[str, Array]
    outputs: Mapping[str, tuple[Array, bool]]
    answers: ExpectedOutputs
    allowed: ToleranceFactors
    again: Mapping[str, tuple[Array, bool]] | None = None

    @cached_property
    def comparisons(self) -> tuple[OutputComparison, ...]:
        """Every output with its answer, the main output first."""
        found = compare_outputs(self.outputs, self.answers, self.task, self.allowed)
        return tuple(one for one, _ in found)

    @cached_property
    def wrong(self) -> tuple[OutputComparison, ErrorLocations] | None:
        """The first output with errors, and their locations; outputs that feed others come first."""
        if not self.task.problem.batch_size:
            return None
        found = [(one, at) for one in self.comparisons if (at := wrong_elements(one)).count]
        named = self.task.op.named
        return min(found, key=lambda each: not named[each[0].name].feeds, default=None)


def hints(failure: WrongResult) -> tuple[Hint, ...]:
    """Return the hints for a result, the most certain first; a right result has none."""
    found = [*_poison(failure), *_guards(failure), *_unsteady(failure)]
    if any(hint.kind == "poison" for hint in found):
        return tuple(found)
    if failure.wrong is None:
        return (*found, *_neighbours(failure))
    return (*found, *(_formulas(failure, *failure.wrong) or _numbers(failure, *failure.wrong)))


# --- Writes: elements without a write, writes past the end, and races.


def _poison(failure: WrongResult) -> Iterator[Hint]:
    for one in failure.comparisons if failure.task.problem.batch_size else ():
        got = failure.outputs[one.name][0]

        def left(part: slice, one: OutputComparison = one, got: Array = got) -> Array:
            """Return the mask of elements with poison, without right numbers that equal it by chance."""
            mask = never_written(got, part)
            return mask if one.got is not got or not mask.any() else mask & (one.of(part).ratio > 1.0)

        found = error_locations(left, len(got), got.size // len(got))
        # If nearly all elements are wrong, some of a narrow type look like poison by chance.
        if found.count and (got.dtype.itemsize > 2 or _CHANCE * found.count > wrong_elements(one).count):
            yield Hint("poison", _left_out(one.name, got, found))


def _left_out(name: str, got: Array, left: ErrorLocations) -> str:
    """Return a sentence about the elements that were never written."""
    rows, cols = len(got), got.size // len(got)
    if left.count == got.size:
        return f"{name} was never written"
    if got.ndim == 1:
        return f"{element_groups('element', left.some_rows)} of {name} {_were(left.count)} never written"
    for word, whole, of, each in (
        ("row", left.whole_rows, rows, cols),
        ("column", left.whole_cols, cols, rows),
    ):
        if left.count == whole.sum() * each:
            return f"{element_groups(word, whole)} of {of} of {name} {_were(whole.sum())} never written"
    where = f"in {element_groups('row', left.some_rows)} and {element_groups('column', left.some_cols)}"
    return f"{share_text(left.count, got.size)} of {name} were never written, {where}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _guards(failure: WrongResult) -> Iterator[Hint]:
    for name, (_, intact) in failure.outputs.items():
        if not intact:
            yield Hint(
                "guard",
                f"memory after the end of {name} has changed: fits stores without a check of the number of "
                "rows or columns",
            )


def _unsteady(failure: WrongResult) -> Iterator[Hint]:
    for name, (again, _) in (failure.again or {}).items():
        first = failure.outputs[name][0]
        size = first.dtype.itemsize
        unlike = np.ascontiguousarray(first).view(f"u{size}") != np.ascontiguousarray(again).view(f"u{size}")
        if unlike.any():
            at = ", ".join(str(int(index)) for index in np.argwhere(unlike)[0])
            yield Hint(
                "unsteady",
                f"{int(unlike.sum())} of {unlike.size} elements of {name} differ between runs, the first is "
                f"{name}[{at}]: fits a race (a missing barrier, or two invocations that write one word) or "
                "a read of memory before it is written",
            )
            return


# --- Numbers: formulas, precision and error patterns.


@dataclass(frozen=True)
class _BatchPart:
    """A part of a failure's batch as a task. Its arrays include the written outputs that feed others."""

    part: slice
    task: Task
    arrays: Mapping[str, Array]

    @classmethod
    def of(cls, failure: WrongResult, at: ErrorLocations) -> _BatchPart:
        """Return the first rows, or the rows from the first wrong one on."""
        problem = failure.task.problem
        count = max(1, min(problem.batch_size, _MOST_ELEMENTS // problem.inner))
        first = at.first[0] if at.first and len(at.some_rows) == problem.batch_size else 0
        part = (
            slice(0, count) if first < count else slice(first - 1, min(first - 1 + count, problem.batch_size))
        )
        op = failure.task.op
        fed = {name: got for name, (got, _) in failure.outputs.items() if op.named[name].feeds}
        arrays = batch_part(op, {**failure.arrays, **fed}, part)
        return cls(part, Task(op, problem.with_batch(part.stop - part.start)), arrays)


def _formulas(failure: WrongResult, one: OutputComparison, at: ErrorLocations) -> list[Hint]:
    """Return a hint that names the wrong formulas that the output fits."""
    sample = _BatchPart.of(failure, at)
    whole = sample.task.problem.batch_size == failure.task.problem.batch_size
    compared = {each.name: each for each in failure.comparisons}
    right = {name: _farthest(each, sample.part) for name, each in compared.items() if len(each.got)}
    fits: dict[str, float] = {}
    named, mistakes = sample.task.op.named, sample.task.op.hook("mistakes")
    for name, outputs in (mistakes(sample.task, sample.arrays) if mistakes is not None else {}).items():
        # Outputs over the whole batch are unknown for a part of it.
        known = {output: value for output, value in outputs.items() if whole or named[output].batched}
        if one.name not in known or np.isnan(known[one.name]).mean() > 0.5:
            continue
        far = max(_distance(compared[output], sample.part, value) for output, value in known.items())
        if far <= _NEAR and far * _FAR <= max(right[output] for output in known):
            fits[name] = far
    exact = [name for name, far in fits.items() if far <= 1.0]
    names = exact or list(fits)
    if not names or len(names) > _MOST_FORMULAS:
        return []
    rounding = "" if exact else f", but for rounding (at most {max(fits.values()):.2g} times the tolerance)"
    return [Hint("formula", f"{one.name} fits a kernel that {', or '.join(names)}{rounding}")]


def _farthest(one: OutputComparison, part: slice) -> float:
    return float(one.of(part if one.got.ndim == 2 else slice(None)).ratio.max(initial=0.0))


def _distance(one: OutputComparison, part: slice, value: Array) -> float:
    """Return the largest error relative to a formula's values, in units of their tolerance.

    If a few columns already are too far off, the rest is not computed.
    """
    if value.ndim == 2 and value.shape[1] > 2 * _GLANCE:
        far = _distance_at(one, (part, slice(0, _GLANCE)), value[:, :_GLANCE])
        if far > _NEAR:
            return far
    return _distance_at(one, (part if value.ndim == 2 else slice(None),), value)


def _distance_at(one: OutputComparison, part: tuple[slice, ...], value: Array) -> float:
    right = one.answer
    unit, shaky = (
        np.broadcast_to(each, right.value.shape)[part] for each in (right.error_scale, right.mean_error_scale)
    )
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        larger = np.maximum(unit, np.abs(value))
        answer = Expected(value, larger, shaky * (larger / np.where(unit > 0, unit, 1.0)))
        found = replace(one, got=one.got[part], answer=answer).of(slice(0, len(value)))
    known = ~np.isnan(value)
    return float(found.ratio[known].max(initial=0.0)) if known.any() else 0.0


def _numbers(failure: WrongResult, one: OutputComparison, at: ErrorLocations) -> list[Hint]:
    """Return hints about the pattern of errors: the op's own diagnosis, the last digits, or locations."""
    sample = _BatchPart.of(failure, at)
    diagnose = failure.task.op.hook("diagnosis")
    own = (
        diagnose(one, sample.task, sample.arrays, sample.part, failure) if diagnose is not None else iter(())
    )
    place = location_pattern(one, at)
    found = []
    if precision := next(own, None):
        found.append(Hint("precision", precision[1]))
    elif digits := last_digits_pattern(one):
        found.append(Hint("precision", digits))
    elif explained := next(own, None):
        found.append(Hint(*explained))
    if not found and not place:
        place = f"{wrong_everywhere(one, at)}, and fits no known formula"
        if failure.task.op.is_users:
            place += "; an @op.mistake in op.py can name such a bug"
    return [*found, *([Hint("place", place)] if place else [])]


def _neighbours(failure: WrongResult) -> Iterator[Hint]:
    """Yield a hint if too many elements of a narrow type are one step off the answer."""
    for one in failure.comparisons if failure.task.problem.batch_size else ():
        unequal = sum(found.unequal for found in one.map_blocks(one.of))
        if too_many_neighbours(one, unequal):
            text = f"{share_text(unequal, one.got.size)} of {one.name} are one step off the rounded answer"
            yield Hint("precision", f"{text}: fits a rounding to {one.dtype} that is not to nearest")


def location_pattern(one: OutputComparison, at: ErrorLocations) -> str | None:
    """Return a sentence about the locations of errors, None if they are everywhere."""
    what, size = _error_kind(one, at), one.got.size
    if one.got.ndim == 1:
        # A few elements may be right by chance.
        if at.count >= _FILLED * size:
            return None
        elements = element_groups("element", at.some_rows)
        return f"{one.name} {what} only in {elements} of {size}{_tail(at.some_rows)}"
    words = []
    if not at.some_rows.all():
        words.append(f"{element_groups('row', at.some_rows)} of {one.rows}")
    # Scattered columns are not a pattern.
    filled = at.count >= _FILLED * at.some_rows.sum() * at.some_cols.sum() and short_text(at.some_cols)
    if not at.some_cols.all() and filled:
        words.append(f"{element_groups('column', at.some_cols)} of {one.cols}{_tail(at.some_cols)}")
    if not filled and (values := _values(one, at)):
        return values
    if not words:
        return None
    return f"{one.name} {what} only in {' and '.join(words)} ({share_text(at.count, size)})"


def wrong_everywhere(one: OutputComparison, at: ErrorLocations) -> str:
    """Return a sentence about the number of errors in an output without a pattern of locations."""
    where = "in all rows and columns" if at.some_rows.all() and at.some_cols.all() else "scattered"
    return f"{one.name} {_error_kind(one, at)} in {share_text(at.count, one.got.size)}, {where}"


def _error_kind(one: OutputComparison, at: ErrorLocations) -> str:
    """Return "is NaN or Inf" if all wrong elements are, and "is wrong" otherwise."""
    broken = sum(one.map_blocks(lambda part: int(np.isinf(one.of(part).ratio).sum())))
    return "is NaN or Inf" if broken == at.count else "is wrong"


def _tail(mask: Array) -> str:
    """Return a remark if the mask marks the last elements and no others."""
    first = int(np.flatnonzero(mask)[0])
    return ", the last: fits a tail" if first and mask[first:].all() else ""


def _values(one: OutputComparison, at: ErrorLocations) -> str | None:
    """Return a sentence about the sign or size of the answers that are wrong, if that is a pattern."""

    def of(part: slice) -> tuple[Array, Array]:
        found = one.of(part)
        bad = found.ratio > 1.0
        return found.value[bad], found.value[~bad]

    if at.count > _FILLED * one.got.size or one.got.size > _MOST_SORTED:
        return None
    bad, good = (np.concatenate(parts) for parts in zip(*one.map_blocks(of), strict=True))
    tests = (
        ("negative", bad < 0, good < 0),
        ("positive", bad > 0, good > 0),
        (f"at least {np.abs(bad).min():.4g} in size", np.abs(bad) > 0, np.abs(good) >= np.abs(bad).min()),
        (f"at most {np.abs(bad).max():.4g} in size", np.abs(bad) >= 0, np.abs(good) <= np.abs(bad).max()),
    )
    for words, of_bad, of_good in tests:
        if of_bad.all() and of_good.sum() <= (1.0 - _FILLED) * bad.size and not of_good.all():
            return (
                f"{one.name} is wrong only where the answer is {words} ({share_text(at.count, one.got.size)})"
            )
    return None


def last_digits_pattern(one: OutputComparison) -> str | None:
    """Return a sentence about an output that is wrong in its last digits only, or None."""

    def of(part: slice) -> tuple[float, bool, bool]:
        if one.dtype != "float32":
            return _narrow_digits(one, part)
        return float(one.of(part).ratio.max(initial=0.0)), True, False

    ratios, near, cut = zip(*one.map_blocks(of), strict=True)
    if not all(near) or max(ratios) > _DIGITS:
        return None
    if all(cut):
        return f"{one.name} fits values that are cut off instead of rounded to {one.dtype}"
    if one.dtype != "float32":
        return f"{one.name} is wrong only in the last digit of {one.dtype}"
    return f"only the last digits of {one.name} are wrong, by at most {max(ratios):.3g} times the tolerance"


def _narrow_digits(one: OutputComparison, part: slice) -> tuple[float, bool, bool]:
    """Return 0.0, true if some rows are within a unit in the last place, and true if they are truncated too.

    This is the form of `of` in `last_digits_pattern` for narrow types.
    """
    found = one.of(part)
    if not np.isfinite(found.got).all():
        return 0.0, False, False
    nearest = rounded_to(found.value, one.dtype)
    unit = np.ones(1)
    if one.dtype not in INTEGERS:
        limits = finfo(one.dtype)
        unit = float(limits.eps) * np.abs(nearest) + float(limits.smallest_subnormal)
    near = bool((np.abs(found.got - nearest) <= unit).all())
    cut = bool((np.abs(found.got) <= np.abs(found.value) + found.limit).all())
    return 0.0, near, near and cut


def share_text(count: int, size: int) -> str:
    """Return a share such as "3 of 7 elements"."""
    return f"{count} of {size} elements"


def element_groups(word: str, mask: Array) -> str:
    """Return a group such as "rows 3 to 5"."""
    return f"{word}{'s' if mask.sum() > 1 else ''} {locations_text(mask)}"
