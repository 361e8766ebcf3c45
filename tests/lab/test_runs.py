"""Several runs of one benchmark: their numbers, their intervals, and the merged result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pages import ROOT
from webnorm.gpu import timing
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.results import intervals
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem

CPU = Traits(frozenset(), max_invocations=1024, workgroup_storage=32768, software=True)
PROBLEM = NormProblem(rows=1, cols=1)


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    # The quantiles of printed tables.
    [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.99, 8, 3.355), (0.999, 18, 3.922), (0.95, 1000, 1.962)],
)
def test_quantiles_of_students_t(confidence: float, freedom: float, quantile: float) -> None:
    assert intervals.t_quantile(confidence, freedom) == pytest.approx(quantile, abs=2e-3)


def test_the_midmean_uses_the_middle_half() -> None:
    assert intervals.midmean(np.array([1.0, 2.0, 3.0, 1e9])) == 2.5
    assert intervals.midmean(np.array([7.0])) == 7.0


def test_ratios_are_taken_round_by_round() -> None:
    clock = np.array([1.0, 5.0, 2.0, 9.0])
    assert intervals.log_ratios([3 * clock], [clock]) == pytest.approx([math.log(3)])


@pytest.mark.parametrize("count", [4, 12])
def test_an_interval_of_runs_has_its_coverage(count: int) -> None:
    """One file's runs vary three times as much as the other's, and one in ten is disturbed."""
    rng = np.random.default_rng(0)

    def drawn(mean: float, spread: float) -> Any:
        disturbed = np.where(rng.random(count) < 0.1, 5, 1)
        return mean + spread * disturbed * rng.normal(size=count)

    found = [intervals.difference(drawn(0, 1), drawn(2, 3), 0.95) for _ in range(400)]
    held = sum(low <= 2 <= high for _, low, high in found)
    # Of 400 intervals of 95 %, fewer than 367 would come about once in 300 times.
    assert held >= 367
    assert np.mean([shift for shift, _, _ in found]) == pytest.approx(2, abs=0.3)


def test_a_disturbed_run_is_left_out_where_there_are_ten() -> None:
    quiet = 0.01 * np.arange(10)
    disturbed = np.array([*quiet[:-1], 100.0])
    shift, low, high = intervals.difference(quiet, disturbed, 0.95)
    assert abs(shift) < 0.01 and high - low < 0.1


def test_the_median_of_few_values_has_no_interval() -> None:
    assert intervals.median_interval(np.arange(5.0)) == (-math.inf, math.inf)
    assert intervals.median_interval(np.arange(6.0)) == (0.0, 5.0)
    # 20 values: 2 P(at most 5 of 20 heads) = 0.041, with 6 it would be 0.115.
    assert intervals.median_interval(np.arange(20.0)) == (5.0, 14.0)


def result(samples: list[float], kernel: str = "naive", **changes: Any) -> Result:
    op = "copy" if kernel == "copy" else "layer_norm"
    base = Result(op=op, kernel=kernel, constants={}, problem=PROBLEM, status="pass")
    timed = {"median_ns": float(np.median(samples)), "samples_ns": tuple(samples), "bytes": 600, "gbps": 6.0}
    return replace(base, **{**timed, **changes})


def test_samples_of_runs_are_concatenated() -> None:
    first = [result([100.0, 200.0]), result([50.0, 90.0], "copy")]
    second = [result([300.0]), result([60.0], "copy")]
    kernel, copy = bench.merge_runs([first, second])
    assert (kernel.samples_ns, kernel.runs) == ((100.0, 200.0, 300.0), (2, 1))
    assert (kernel.median_ns, kernel.gbps) == (200.0, 3.0)
    assert kernel.p80_ns == pytest.approx(260.0)
    assert copy.median_ns == 60.0 and kernel.percent_of_copy == pytest.approx(30.0)
    assert [list(run) for run in kernel.samples_by_run] == [[100.0, 200.0], [300.0]]
    assert kernel.shares_rounds(copy) and not kernel.shares_rounds(result([1.0, 2.0, 3.0]))


def test_a_single_run_is_unchanged() -> None:
    alone = [result([1.0, 2.0], flags=("noisy",))]
    assert bench.merge_runs([alone]) == alone


def test_a_failure_in_one_run_is_a_failure() -> None:
    wrong = replace(result([1.0]), status="fail", reason="off by 3", median_ns=None, samples_ns=None)
    (found,) = bench.merge_runs([[result([1.0])], [wrong], [result([1.0])]])
    assert (found.status, found.samples_ns, found.reason) == ("fail", None, "in run 2 of 3: off by 3")
    assert bench.has_failures([found])


def test_a_flag_of_one_run_in_three_is_dropped() -> None:
    one, two = result([1.0] * 4), result([1.0] * 4, flags=("throttled",))
    assert bench.merge_runs([[one], [two], [one]])[0].flags == ()
    assert bench.merge_runs([[two], [two], [one]])[0].flags == ("throttled",)


def test_runs_that_disagree_relative_to_the_copy_are_noisy() -> None:
    def of(scales: tuple[float, ...], copies: tuple[float, ...]) -> tuple[str, ...]:
        found = [
            [
                result([factor * one for one in (1.0, 2.0, 3.0, 4.0)], name, flags=("noisy",))
                for name, factor in run
            ]
            for run in ((("naive", own), ("copy", copy)) for own, copy in zip(scales, copies, strict=True))
        ]
        return bench.merge_runs(found)[0].flags

    assert of((1, 2, 4), copies=(1, 2, 4)) == ()
    assert of((1, 2, 4), copies=(1, 1, 1)) == ("noisy",)
    # Two runs are too few, so the runs' own flags stay.
    assert of((1, 1), copies=(1, 1)) == ("noisy",)


class FakeWorker:
    """A worker that counts its processes."""

    def __init__(self) -> None:
        self.processes = 1

    def stop(self) -> None:
        self.processes += 1


def test_each_run_has_a_process_and_measures_all_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tuple(Task(OPS["layer_norm"], NormProblem(rows=rows, cols=1)) for rows in (1, 2))
    worker = FakeWorker()

    def measured(request: Any, task: Task, worker: Any, traits: Any) -> Iterator[Any]:
        yield bench.Progress(task, "timing")
        yield [result([float(worker.processes)] * 4, problem=task.problem)]

    monkeypatch.setattr(bench, "_run_task", measured)
    request = bench.BenchRequest(tasks, (), (), timing.QUICK, runs=3)
    events = list(bench.run(request, worker, CPU))  # type: ignore[arg-type]
    progress = [event for event in events if isinstance(event, bench.Progress)]
    assert [(event.place, event.task.problem.rows) for event in progress] == [
        (f"run {run} of 3", rows) for run in (1, 2, 3) for rows in (1, 2)
    ]
    assert [event.share for event in progress] == pytest.approx([number / 6 for number in range(6)])
    assert str(progress[0]) == f"timing: run 1 of 3, {tasks[0]}"
    lists = [event for event in events if isinstance(event, list)]
    assert [one[0].runs for one in lists] == [None, None, (4, 4), (4, 4), (4, 4, 4), (4, 4, 4)]
    assert [run[0] for run in lists[-1][0].samples_by_run] == [1.0, 2.0, 3.0]


def test_every_flag_is_explained() -> None:
    """A line below the tables and the docs explain it."""
    text = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    assert all(f'"{flag}"' in text for flag in bench.FLAGS)
    raised = [timing.flags([1.0]), timing.flags([1.0, 9.0] * 9), timing.flags([1.0] * 9 + [2.0] * 9)]
    assert {*raised[0], *raised[1], *raised[2]} == {"few samples", "noisy", "throttled"} <= {*bench.FLAGS}
    noisy, few = result([1.0], flags=("noisy",)), result([1.0], flags=("few samples", "another"))
    lines = bench.flag_meanings([noisy, few, noisy])
    assert [line.partition(":")[0] for line in lines] == ["few samples", "noisy"]
    assert "20 % of the median" in lines[1]
