"""Why an output may be wrong: what it fits, never what it is. What its wrong elements have in common."""

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

# Hints name rows and columns: those of an output as a matrix (OutputComparison).
Kind = Literal["poison", "guard", "unsteady", "race", "loop", "formula", "statistics", "place", "precision"]
# Elements of the rows that formulas are tried on: all of them at once take tens of megabytes.
_MOST_ELEMENTS = 1 << 16
# Times its tolerance that an output may be from a formula that it fits "but for rounding": the tolerance is
# that of the right formula, whose numbers are smaller now and then.
_NEAR = 8.0
# Times as far as from a formula that the output has to be from the right answer.
_FAR = 10.0
# Columns that most formulas are ruled out by.
_GLANCE = 32
# Of so many wrong elements of a narrow type one may look as if it had never been written.
_CHANCE = 500
# So many formulas that all fit tell nothing.
_MOST_FORMULAS = 4
# The share of the elements of some rows and some columns that makes a report name these rows and columns.
_FILLED = 0.9
# Errors of so many times the tolerance are of the last digits.
_DIGITS = 50.0
# Elements whose answers are looked at all at once.
_MOST_SORTED = 1 << 22


@dataclass(frozen=True)
class Hint:
    """What a wrong result fits, in a sentence without a full stop, and where in the template, if known."""

    kind: Kind
    text: str
    place: SourceLocation | None = None


@dataclass(frozen=True)
class WrongResult:
    """A wrong result: the outputs, each with whether its guard is intact, beside the float64 answers.

    `arrays` are the inputs. `again` has the outputs of a second run on the same inputs.
    """

    task: Task
    arrays: Mapping[str, Array]
    outputs: Mapping[str, tuple[Array, bool]]
    answers: ExpectedOutputs
    allowed: ToleranceFactors
    again: Mapping[str, tuple[Array, bool]] | None = None

    @cached_property
    def comparisons(self) -> tuple[OutputComparison, ...]:
        """Every output beside its answer, the main one first."""
        found = compare_outputs(self.outputs, self.answers, self.task, self.allowed)
        return tuple(one for one, _ in found)

    @cached_property
    def wrong(self) -> tuple[OutputComparison, ErrorLocations] | None:
        """The first output that is beyond its tolerance, and where; one that feeds others before them."""
        if not self.task.problem.batch_size:
            return None
        found = [(one, at) for one in self.comparisons if (at := wrong_elements(one)).count]
        named = self.task.op.named
        return min(found, key=lambda each: not named[each[0].name].feeds, default=None)


def hints(failure: WrongResult) -> tuple[Hint, ...]:
    """What a result fits, the surest first; nothing for one that is right."""
    found = [*_poison(failure), *_guards(failure), *_unsteady(failure)]
    if any(hint.kind == "poison" for hint in found):
        return tuple(found)
    if failure.wrong is None:
        return (*found, *_neighbours(failure))
    return (*found, *(_formulas(failure, *failure.wrong) or _numbers(failure, *failure.wrong)))


# --- what was written, and when


def _poison(failure: WrongResult) -> Iterator[Hint]:
    for one in failure.comparisons if failure.task.problem.batch_size else ():
        got = failure.outputs[one.name][0]

        def left(part: slice, one: OutputComparison = one, got: Array = got) -> Array:
            """Of narrow types a number may look like poison, and a right one does so by chance."""
            mask = never_written(got, part)
            return mask if one.got is not got or not mask.any() else mask & (one.of(part).ratio > 1.0)

        found = error_locations(left, len(got), got.size // len(got))
        # Where nearly all is wrong, some of a narrow type looks like poison by chance.
        if found.count and (got.dtype.itemsize > 2 or _CHANCE * found.count > wrong_elements(one).count):
            yield Hint("poison", _left_out(one.name, got, found))


def _left_out(name: str, got: Array, left: ErrorLocations) -> str:
    """Which elements were never written."""
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
                f"what lies behind the end of {name} has changed: fits stores that are not guarded by the "
                "number of rows, or of columns",
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
                f"{int(unlike.sum())} of {unlike.size} elements of {name} differ from run to run, the first "
                f"{name}[{at}]: fits a race (a barrier is missing, or two invocations write one word), or "
                "memory that is read before it is written",
            )
            return


# --- what was computed


@dataclass(frozen=True)
class _Few:
    """A part of a failure's batch: a task of its own, whose arrays have what was written of outputs that feed
    others.
    """

    part: slice
    task: Task
    arrays: Mapping[str, Array]

    @classmethod
    def of(cls, failure: WrongResult, at: ErrorLocations) -> _Few:
        """The first rows, or those from the first wrong one on."""
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
    """The wrong formulas that the output fits."""
    few = _Few.of(failure, at)
    whole = few.task.problem.batch_size == failure.task.problem.batch_size
    compared = {each.name: each for each in failure.comparisons}
    right = {name: _farthest(each, few.part) for name, each in compared.items() if len(each.got)}
    fits: dict[str, float] = {}
    named, mistakes = few.task.op.named, few.task.op.hook("mistakes")
    for name, outputs in (mistakes(few.task, few.arrays) if mistakes is not None else {}).items():
        # Of a part of the batch nothing is known that is of all of it.
        known = {output: value for output, value in outputs.items() if whole or named[output].batched}
        if one.name not in known or np.isnan(known[one.name]).mean() > 0.5:
            continue
        far = max(_distance(compared[output], few.part, value) for output, value in known.items())
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
    """The largest error against a formula's values, in units of what would be tolerated of these; that of a
    few columns, where these are too far off.
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
    """What the errors are like: what the op itself finds in them, the last digits, a place."""
    few = _Few.of(failure, at)
    diagnose = failure.task.op.hook("diagnosis")
    own = diagnose(one, few.task, few.arrays, few.part, failure) if diagnose is not None else iter(())
    place = location_pattern(one, at)
    found = []
    if precision := next(own, None):
        found.append(Hint("precision", precision[1]))
    elif digits := last_digits_pattern(one):
        found.append(Hint("precision", digits))
    elif explained := next(own, None):
        found.append(Hint(*explained))
    if not found and not place:
        place = f"{wrong_everywhere(one, at)}, and fits no formula that is known here"
    return [*found, *([Hint("place", place)] if place else [])]


def _neighbours(failure: WrongResult) -> Iterator[Hint]:
    """Of a narrow type whose elements are all within their tolerance, too many may be a neighbour."""
    for one in failure.comparisons if failure.task.problem.batch_size else ():
        unequal = sum(found.unequal for found in one.map_blocks(one.of))
        if too_many_neighbours(one, unequal):
            text = f"{share_text(unequal, one.got.size)} of {one.name} are a neighbour of the rounded answer"
            yield Hint("precision", f"{text}: fits a rounding to {one.dtype} that is not to the nearest")


def location_pattern(one: OutputComparison, at: ErrorLocations) -> str | None:
    """Where an output is wrong, if that is not everywhere."""
    what, size = _what(one, at), one.got.size
    if one.got.ndim == 1:
        if at.some_rows.all():
            return None
        elements = element_groups("element", at.some_rows)
        return f"{one.name} {what} only in {elements} of {size}{_tail(at.some_rows)}"
    words = []
    if not at.some_rows.all():
        words.append(f"{element_groups('row', at.some_rows)} of {one.rows}")
    # Columns here and there are not what the wrong ones have in common.
    filled = at.count >= _FILLED * at.some_rows.sum() * at.some_cols.sum() and short_text(at.some_cols)
    if not at.some_cols.all() and filled:
        words.append(f"{element_groups('column', at.some_cols)} of {one.cols}{_tail(at.some_cols)}")
    if not filled and (values := _values(one, at)):
        return values
    if not words:
        return None
    return f"{one.name} {what} only in {' and '.join(words)} ({share_text(at.count, size)})"


def wrong_everywhere(one: OutputComparison, at: ErrorLocations) -> str:
    """How much of an output is wrong that has no such place."""
    where = "in all rows and columns" if at.some_rows.all() and at.some_cols.all() else "here and there"
    return f"{one.name} {_what(one, at)} in {share_text(at.count, one.got.size)}, {where}"


def _what(one: OutputComparison, at: ErrorLocations) -> str:
    """What is the matter with the wrong elements."""
    broken = sum(one.map_blocks(lambda part: int(np.isinf(one.of(part).ratio).sum())))
    return "is NaN or Inf" if broken == at.count else "is wrong"


def _tail(mask: Array) -> str:
    """Whether these are the last ones and no others."""
    first = int(np.flatnonzero(mask)[0])
    return ", the last: fits a tail" if first and mask[first:].all() else ""


def _values(one: OutputComparison, at: ErrorLocations) -> str | None:
    """Which answers are missed, where their sign or size shows it."""

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
        (f"{np.abs(bad).min():.4g} or more in size", np.abs(bad) > 0, np.abs(good) >= np.abs(bad).min()),
        (f"{np.abs(bad).max():.4g} or less in size", np.abs(bad) >= 0, np.abs(good) <= np.abs(bad).max()),
    )
    for words, of_bad, of_good in tests:
        if of_bad.all() and of_good.sum() <= (1.0 - _FILLED) * bad.size and not of_good.all():
            return (
                f"{one.name} is wrong only where the answer is {words} ({share_text(at.count, one.got.size)})"
            )
    return None


def last_digits_pattern(one: OutputComparison) -> str | None:
    """How far an output is off that is right but for its last digits."""

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
        return f"{one.name} is wrong in the last digit of {one.dtype} alone"
    return f"only the last digits of {one.name} are wrong, by at most {max(ratios):.3g} times the tolerance"


def _narrow_digits(one: OutputComparison, part: slice) -> tuple[float, bool, bool]:
    """No ratio, but whether some rows are within a unit in the last place of a narrow type, and whether they
    are all nearer to 0 than the answer.
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
    """Such as "3 of 7 elements"."""
    return f"{count} of {size} elements"


def element_groups(word: str, mask: Array) -> str:
    """Such as "rows 3 to 5"."""
    return f"{word}{'s' if mask.sum() > 1 else ''} {locations_text(mask)}"
