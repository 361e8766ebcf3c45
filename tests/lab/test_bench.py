"""Intermediate results of a benchmark, which remain after Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from samples import timed
from testbed import SOFTWARE, kernel_named
from webnorm.gpu import timing
from webnorm.kernels.headers.library import UnreadableKernel
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench, jobs
from webnorm.lab.run.bench import BenchRequest, Progress
from webnorm.lab.verify.trial import blank_result, with_samples
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem

TASK = Task(OPS["layer_norm"], NormProblem(rows=8, cols=64))
KERNELS = tuple(kernel_named(name) for name in ("naive", "two_pass"))
BROKEN = UnreadableKernel(TASK.op, "unreadable", KERNELS[0].path, "it is none")
REQUEST = BenchRequest(
    (TASK,), KERNELS, (kernel_named("copy", "copy"),), timing.QUICK, ladder=KERNELS[:1], broken=(BROKEN,)
)


class Timing:
    """A fake worker: the first kernel is wrong, the rounds of the others are 200 ns and of copies 100 ns."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.processes = rounds, 1

    def stop(self) -> None:
        self.processes += 1

    def stream(self, work: Any, job: jobs.TimingJob) -> Iterator[Any]:
        right: dict[int, Result] = {}
        for index, spec in enumerate(job.variants):
            yield jobs.VariantBegan(index)
            found = replace(blank_result(spec.variant(), TASK.problem), bytes=4096)
            if found.kernel == "naive":
                yield jobs.VariantResult(index, replace(found, status="fail", reason="off"))
            else:
                right[index] = replace(found, status="pass")
        for index, result in right.items():
            yield jobs.VariantReady(index, result)
        times = tuple(100.0 if one.roofline else 200.0 for one in right.values())
        for done in range(1, self.rounds + 1):
            yield timing.RoundDone(done, self.rounds)
            yield jobs.RoundSampled(times)
        yield jobs.CheckingTimedWork()
        for index, result in right.items():
            yield jobs.VariantBegan(index)
            yield jobs.VariantResult(index, with_samples(result, [times[0]] * self.rounds))


def events(rounds: int, runs: int = 1) -> Iterator[tuple[Progress | list[Result], list[Result]]]:
    """Yield the events of a benchmark, with the results known so far."""
    for event in bench.run(replace(REQUEST, runs=runs), Timing(rounds), SOFTWARE):  # type: ignore[arg-type]
        yield event, event.so_far() if isinstance(event, Progress) else []


def doing(event: Progress | list[Result]) -> str:
    return event.doing if isinstance(event, Progress) else "done"


def test_finished_rounds_are_results() -> None:
    for event, known in events(rounds=8):
        if doing(event) == "timing round 4 of 8":
            # The samples of the round follow this event.
            assert {one.flags for one in known if one.timed} == {("few samples", "interrupted")}
        if doing(event) == "timing round 8 of 8":
            break
    named = {one.kernel: one for one in known}
    assert set(named) == {"copy", "naive", "two_pass", "unreadable"}
    timed = named["two_pass"]
    assert (timed.status, timed.samples_ns, timed.median_ns) == ("pass", (200.0,) * 7, 200.0)
    assert timed.flags == ("interrupted",) and timed.percent_of_copy == pytest.approx(50)
    assert (named["naive"].status, named["naive"].auto) == ("fail", "rules")
    assert named["unreadable"].reason == "it is none"


def test_no_results_before_a_round_and_all_after_the_proof() -> None:
    for event, known in events(rounds=2):
        if doing(event).startswith(("checking", "timing round 1 ")):
            assert known == []
        if doing(event).startswith("proving"):
            # Variants with a proof are no longer "interrupted".
            assert any("interrupted" in one.flags for one in known)
    assert isinstance(event, list) and not any("interrupted" in one.flags for one in event)


def test_the_fastest_copy_has_100_percent_exactly() -> None:
    """With this number, 100 * x / x is 99.99999999999999."""
    copies = [timed("copy", 1.0, op="copy", gbps=gbps) for gbps in (0.74939, 0.5)]
    assert [one.percent_of_copy for one in bench.with_share_of_copy(copies)] == [
        100,
        pytest.approx(66.7, abs=0.1),
    ]


def test_a_complete_run_is_not_mixed_with_a_partial_one() -> None:
    seen = [known for event, known in events(rounds=3, runs=2) if doing(event) == "timing round 3 of 3"]
    assert seen[0] and not seen[1]
