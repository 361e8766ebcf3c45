"""A step of the playground ends as done only if it did its whole work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from webnorm.cli.terminal.screen import Screen
from webnorm.cli.verbs.play import ShownAttempt, _once
from webnorm.cli.work.jobs import BAD_USAGE, INCONCLUSIVE, OK, WRONG
from webnorm.lab.diagnose.hints import Hint
from webnorm.lab.results.result import Result
from webnorm.lab.run.evaluation import LiveResult, RaceCheckResult
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem
from webnorm.play import stages
from webnorm.play.state import (
    AttemptState,
    CorpusProgress,
    PlaygroundState,
    Settings,
    Snapshot,
    StageTime,
    WatchedFile,
)

ATTEMPT = AttemptState(number=1, hash="0", saved="")
RESULT = Result(
    op="layer_norm", kernel="mine", constants={}, problem=NormProblem(rows=4, cols=8), status="pass", case="a"
)


@dataclass
class FakeRun:
    """An attempt whose worker yields the given answers."""

    answers: Sequence[Any]
    attempt: AttemptState = ATTEMPT
    settings: Settings = field(default_factory=Settings)
    left_cases: list[Any] | None = None
    failed_before: frozenset[str] = frozenset()
    software: bool = True
    op: Any = OPS["layer_norm"]
    job: Any = field(default_factory=lambda: SimpleNamespace(constants={}))
    text: Any = None
    roots: tuple[Any, ...] = ()
    previous: Any = None
    goal: str | None = None
    timed_task: Task = field(default_factory=lambda: Task(OPS["layer_norm"], RESULT.problem))

    def enter(self, stage: str) -> None:
        self.stage = stage

    def ask(self, work: Any, job: Any) -> Iterable[Any]:
        return iter(self.answers)

    def change(self, **changes: Any) -> None:
        self.attempt = replace(self.attempt, **changes)

    fail = change


def skipped(step: Callable[[Any], None], run: FakeRun) -> str | None:
    try:
        step(run)
    except stages.StageSkipped as reason:
        return str(reason)
    return None


RACE = Hint("race", "two invocations", None)


@pytest.mark.parametrize(
    ("watched", "reason"),
    [
        ([RaceCheckResult(), RaceCheckResult()], None),
        ([RaceCheckResult(), RaceCheckResult(unwatched="no loop", refused=True)], None),
        ([RaceCheckResult(RACE), RaceCheckResult(unwatched="x is passed on by its address")], None),
        (
            [RaceCheckResult(), RaceCheckResult(unwatched="x is passed on by its address")],
            "x is passed on by its address",
        ),
        ([RaceCheckResult(unwatched="no loop", refused=True)] * 2, "no loop"),
    ],
)
def test_a_race_check_that_could_not_watch_is_skipped(
    watched: list[RaceCheckResult], reason: str | None
) -> None:
    run = FakeRun(watched)
    note = skipped(stages.check_races, run)
    assert note == (reason and f"endless loops and data races were not checked: {reason}")
    assert bool(run.attempt.hints) == (watched[0].fault is not None)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (replace(RESULT, median_ns=5.0), None),
        (replace(RESULT, status="skip", reason="only 768"), "only 768"),
        (replace(RESULT, status="fail", expected=True, reason="off by 3"), "off by 3"),
        (replace(RESULT, status="fail", reason="off by 3"), None),
        (RESULT, "no sample was taken"),
        (None, "no sample was taken"),
    ],
)
def test_timing_without_a_time_is_skipped(result: Result | None, reason: str | None) -> None:
    run = FakeRun([] if result is None else [LiveResult("attempt", result, True)])
    note = skipped(stages.time_attempt, run)
    assert note == (reason and f"the kernel was not timed on 4x8 float32: {reason}")


@pytest.mark.parametrize(("refused", "is_skipped"), [(0, False), (2, False), (3, True), (4, True)])
def test_a_corpus_that_is_mostly_refused_is_skipped(refused: int, is_skipped: bool) -> None:
    run = FakeRun([], replace(ATTEMPT, corpus=CorpusProgress(4, 4, skipped=refused)), left_cases=[])
    note = skipped(stages.try_corpus, run)
    assert (note is not None) == is_skipped
    if note:
        assert note.startswith(f"the kernel refuses {refused} of 4 cases")


def test_a_trace_without_records_is_skipped() -> None:
    from webnorm.lab.diagnose.trace import Trace

    empty = cast(Trace, SimpleNamespace(count=0))
    run = FakeRun([empty], settings=Settings(trace="row == 9"))
    note = skipped(stages.trace_attempt, run)
    assert note == "the kernel's trace(...) calls recorded no value that the filter 'row == 9' keeps"
    assert run.attempt.trace is empty


class _IdleSession:
    """A session without work."""

    def __init__(self, attempt: AttemptState | None) -> None:
        file = WatchedFile(name="mine.wgsl", path="mine.wgsl")
        self.state = PlaygroundState(Snapshot(file=file, settings=Settings(), attempt=attempt))

    def idle(self, timeout_s: float) -> bool:
        return True


DONE = (StageTime("verdict", "done"), StageTime("race", "done"))


@pytest.mark.parametrize(
    ("attempt", "status", "said"),
    [
        (replace(ATTEMPT, ok=True, stages=DONE), OK, ""),
        (replace(ATTEMPT, ok=False, stages=(*DONE, StageTime("tint", "skipped"))), WRONG, ""),
        (replace(ATTEMPT, ok=True, stages=(*DONE, StageTime("tint", "skipped"))), INCONCLUSIVE, "tint"),
        (replace(ATTEMPT, ok=True, stages=(*DONE, StageTime("corpus", "failed"))), INCONCLUSIVE, "corpus"),
        (replace(ATTEMPT, ok=None, stages=(StageTime("verdict", "failed"),)), INCONCLUSIVE, "verdict"),
        (None, BAD_USAGE, "nothing could be checked"),
    ],
)
def test_the_exit_status_depends_on_unfinished_steps(
    attempt: AttemptState | None, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _once(cast(Any, _IdleSession(attempt)), Screen(), json=False) == status
    errors = capsys.readouterr().err
    assert errors == ("" if not said else f"webnorm: {'' if attempt is None else 'not checked: '}{said}\n")


def test_a_skipped_step_is_shown_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    skipping = replace(ATTEMPT, ok=True, stages=(*DONE, StageTime("tint", "skipped", 1.0, "node is missing")))
    ShownAttempt(Screen(), json=False).write_news(
        Snapshot(file=WatchedFile(name="m", path="m"), settings=Settings(), attempt=skipping)
    )
    assert capsys.readouterr().out.splitlines()[-2:] == ["- tint 1 ms", "tint: node is missing"]
