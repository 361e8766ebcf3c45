"""The ladder as lessons: what each begins with, what is asked, and whether an attempt does it."""

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
    """What has to be so of an attempt; see ops/norms/lessons.toml."""

    right: bool = False
    hinted: bool = False
    breaks: bool = False
    share: float | None = None
    beside: str | None = None
    reads: float | None = None
    barriers: float | None = None


class Lesson(Struct, frozen=True, forbid_unknown_fields=True):
    """A lesson; `x` is the mean and the spread of an x that it begins with, where it has one."""

    name: str
    title: str
    source: str
    text: str
    marks: LessonGoals
    x: tuple[float, float] | None = None


@dataclass(frozen=True)
class GoalStatus:
    """What has to be so, in words, and whether it is; None where that is not known yet."""

    text: str
    met: bool | None


@cache
def lessons() -> tuple[Lesson, ...]:
    """All of them, in their order: those of the default op."""
    path = default_op().hook("lessons")
    if path is None:
        return ()
    found = tomllib.loads(path.read_text(encoding="utf-8"))["lesson"]
    read = forms.read(found, list[Lesson], "lesson")
    return tuple(structs.replace(one, text=" ".join(one.text.split())) for one in read)


def lesson_named(name: str) -> Lesson:
    """The lesson of a name; WebnormError without one."""
    for one in lessons():
        if one.name == name:
            return one
    raise unknown("lesson", name, [one.name for one in lessons()])


def goal_of(name: str | None) -> str | None:
    """The kernel that a lesson is timed beside; None without one, or a lesson."""
    return None if name is None else lesson_named(name).marks.beside


def goal_statuses(
    lesson: Lesson, attempt: AttemptState | None, history: Sequence[HistoryEntry]
) -> tuple[GoalStatus, ...]:
    """How far an attempt, and those before it, do what is asked."""
    return tuple(_marks(lesson.marks, attempt, history))


def _marks(
    marks: LessonGoals, attempt: AttemptState | None, history: Sequence[HistoryEntry]
) -> Iterator[GoalStatus]:
    if marks.hinted:
        hinted = any(one.hinted for one in history)
        yield GoalStatus("a mistake was made that a hint explains", hinted or None)
    if marks.breaks:
        yield GoalStatus("it is wrong on the x that was chosen", _broken(attempt))
    if marks.right:
        yield GoalStatus("it is right", _right(attempt))
    cost = None if attempt is None else attempt.cost
    if marks.reads is not None:
        told = f"it reads x at most {marks.reads:g} times"
        yield GoalStatus(told, _at_most(None if cost is None else cost.row_reads, marks.reads))
    if marks.barriers is not None:
        told = f"a workgroup passes at most {marks.barriers:g} barriers a row"
        yield GoalStatus(told, _at_most(None if cost is None else cost.barriers, marks.barriers))
    if marks.share is not None:
        told = f"it has {100 * marks.share:g} % of the speed of {marks.beside} here"
        yield GoalStatus(told, _fast(attempt, marks.share))


def _right(attempt: AttemptState | None) -> bool | None:
    """Whether it passes; the failure of a kernel that is declared unstable is none that passes."""
    if attempt is None or attempt.ok is None:
        return None
    return attempt.ok and all(one.result.status != "fail" for one in attempt.shapes)


def _broken(attempt: AttemptState | None) -> bool | None:
    given = None if attempt is None else next((one for one in attempt.shapes if one.given), None)
    return None if given is None else given.result.status == "fail"


def _at_most(value: float | None, most: float) -> bool | None:
    return None if value is None else value <= most


def _fast(attempt: AttemptState | None, share: float) -> bool | None:
    """Whether an attempt is fast enough beside the lesson's own kernel, once that is proved."""
    times = {} if attempt is None else {one.name: one.result for one in attempt.times if one.proved}
    own, goal = times.get("attempt"), times.get("goal")
    if own is None or goal is None or not (own.timed and goal.timed):
        return None
    assert own.median_ns is not None and goal.median_ns is not None
    return goal.median_ns >= share * own.median_ns
