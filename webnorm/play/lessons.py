"""The lessons of the playground: the starting kernel, the goals, and the status of each goal."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from msgspec import Struct, structs

from webnorm.errors import unknown
from webnorm.files import forms
from webnorm.op.registry import default_op
from webnorm.play.state import AttemptState, HistoryEntry


class LessonGoals(Struct, frozen=True, forbid_unknown_fields=True):
    """The goals of a lesson; see ops/norms/lessons.toml."""

    right: bool = False
    hinted: bool = False
    breaks: bool = False
    share: float | None = None
    reference: str | None = None
    reads: float | None = None
    barriers: float | None = None


class Lesson(Struct, frozen=True, forbid_unknown_fields=True):
    """A lesson; `x` is the mean and the standard deviation of its additional input, or None."""

    name: str
    title: str
    source: str
    text: str
    marks: LessonGoals
    x: tuple[float, float] | None = None


@dataclass(frozen=True)
class GoalStatus:
    """A goal in words, and whether it is met; None while that is unknown."""

    text: str
    met: bool | None


@cache
def lessons() -> tuple[Lesson, ...]:
    """Return the lessons of the default op, in order."""
    path = default_op().hook("lessons")
    if path is None:
        return ()
    found = tomllib.loads(path.read_text(encoding="utf-8"))["lesson"]
    read = forms.read(found, list[Lesson], "lesson")
    return tuple(structs.replace(one, text=" ".join(one.text.split())) for one in read)


def lesson_named(name: str) -> Lesson:
    """Return the lesson with this name, or raise WebnormError."""
    for one in lessons():
        if one.name == name:
            return one
    raise unknown("lesson", name, [one.name for one in lessons()])


def reference_kernel(name: str | None) -> str | None:
    """Return the kernel that a lesson's attempts are compared with in speed, or None."""
    return None if name is None else lesson_named(name).marks.reference


def goal_statuses(
    lesson: Lesson, attempt: AttemptState | None, history: Sequence[HistoryEntry]
) -> tuple[GoalStatus, ...]:
    """Return the status of each goal of a lesson, for an attempt and the history before it."""
    return tuple(_marks(lesson.marks, attempt, history))


def _marks(
    marks: LessonGoals, attempt: AttemptState | None, history: Sequence[HistoryEntry]
) -> Iterator[GoalStatus]:
    if marks.hinted:
        hinted = any(one.hinted for one in history)
        yield GoalStatus("a hint named the bug of a wrong attempt", hinted or None)
    if marks.breaks:
        yield GoalStatus("the output is wrong for the chosen x", _broken(attempt))
    if marks.right:
        yield GoalStatus("the output is right for every problem", _right(attempt))
    cost = None if attempt is None else attempt.cost
    if marks.reads is not None:
        text = f"x is read at most {marks.reads:g} times per element"
        yield GoalStatus(text, _at_most(None if cost is None else cost.row_reads, marks.reads))
    if marks.barriers is not None:
        text = f"a workgroup passes at most {marks.barriers:g} barriers per row"
        yield GoalStatus(text, _at_most(None if cost is None else cost.barriers, marks.barriers))
    if marks.share is not None:
        text = f"the kernel reaches {100 * marks.share:g} % of the speed of {marks.reference} on this adapter"
        yield GoalStatus(text, _fast(attempt, marks.share))


def _right(attempt: AttemptState | None) -> bool | None:
    """Return True if the attempt passes without a failure, declared or not."""
    if attempt is None or attempt.ok is None:
        return None
    return attempt.ok and all(one.result.status != "fail" for one in attempt.shapes)


def _broken(attempt: AttemptState | None) -> bool | None:
    given = None if attempt is None else next((one for one in attempt.shapes if one.given), None)
    return None if given is None else given.result.status == "fail"


def _at_most(value: float | None, most: float) -> bool | None:
    return None if value is None else value <= most


def _fast(attempt: AttemptState | None, share: float) -> bool | None:
    """Compare the attempt with the lesson's reference kernel; None until both timings are proved."""
    times = {} if attempt is None else {one.name: one.result for one in attempt.times if one.proved}
    own, goal = times.get("attempt"), times.get("goal")
    if own is None or goal is None or not (own.timed and goal.timed):
        return None
    assert own.median_ns is not None and goal.median_ns is not None
    return goal.median_ns >= share * own.median_ns
