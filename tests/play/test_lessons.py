"""Lessons start with existing kernels, and goals follow from the state of an attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed import kernel_named
from webnorm.errors import WebnormError
from webnorm.lab.results.result import Result
from webnorm.lab.run.evaluation import ProblemVerdict
from webnorm.lab.run.jobs import ShaderCost
from webnorm.ops.norms.problem import NormProblem
from webnorm.play.lessons import goal_statuses, lesson_named, lessons, reference_kernel
from webnorm.play.state import AttemptState, HistoryEntry, LiveTime


def result(status: Any, median_ns: float | None = None) -> Result:
    problem = NormProblem(rows=2, cols=4)
    found = Result(
        op="layer_norm", kernel="k", constants={}, problem=problem, status=status, median_ns=median_ns
    )
    return replace(found, expected=True) if status == "fail" else found


def attempt(**known: Any) -> AttemptState:
    return AttemptState(number=1, hash="0" * 64, saved="", **known)


def met(name: str, found: AttemptState | None, *history: HistoryEntry) -> list[bool | None]:
    return [mark.met for mark in goal_statuses(lesson_named(name), found, history)]


def test_every_lesson_has_its_kernels() -> None:
    for lesson in lessons():
        assert kernel_named(lesson.source).op.name == "layer_norm"
        assert lesson.marks.reference is None or kernel_named(lesson.marks.reference)
        assert "\n" not in lesson.text and goal_statuses(lesson, None, ())
    assert reference_kernel("two_pass") == "two_pass" and reference_kernel(None) is None
    with pytest.raises(WebnormError, match="unknown lesson 'nine'"):
        lesson_named("nine")


def test_an_unknown_goal_is_neither_met_nor_missed() -> None:
    for lesson in lessons():
        assert {mark.met for mark in goal_statuses(lesson, attempt(), ())} == {None}


def test_a_bug_must_be_hinted_and_fixed() -> None:
    hinted = HistoryEntry(number=1, hash="", saved="", status="fail", hinted=True)
    assert met("naive", attempt(ok=False), hinted) == [True, False]
    assert met("naive", attempt(ok=True), hinted) == [True, True]
    assert met("naive", attempt(ok=True)) == [None, True]


def test_only_the_chosen_x_must_fail() -> None:
    gentle, chosen = (
        ProblemVerdict("8x768", result("pass")),
        ProblemVerdict("8x768", result("fail"), given=True),
    )
    assert met("one_pass", attempt(ok=True, shapes=(gentle,))) == [None]
    assert met("one_pass", attempt(ok=True, shapes=(gentle, chosen))) == [True]


def test_a_declared_failure_is_not_right() -> None:
    failed = attempt(ok=True, shapes=(ProblemVerdict("8x768", result("fail")),))
    assert met("two_pass", failed)[0] is False


def test_times_and_counts_decide() -> None:
    cost = ShaderCost(2.0, 2.0, 1.0, 3.0, 20.0, 64)
    times = (LiveTime("attempt", result("pass", 100.0), True), LiveTime("goal", result("pass", 81.0), True))
    known = attempt(ok=True, times=times, cost=cost)
    assert met("welford_subgroup", known) == [True, False, True]
    slower = replace(known, times=(times[0], LiveTime("goal", result("pass", 79.0), True)))
    assert met("welford_subgroup", slower)[2] is False
    unproved = replace(known, times=(times[0], replace(times[1], proved=False)))
    assert met("welford_subgroup", unproved)[2] is None
