"""The common parts of verbs that use a worker: progress bar, Ctrl-C and exit status."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from rich.progress import Progress

from commands import webnorm
from patience import HANG_S
from samples import timed
from webnorm.cli.terminal import screen
from webnorm.cli.terminal.screen import Screen, TimeLeft, in_words
from webnorm.cli.work.jobs import (
    INTERRUPTED,
    WRONG,
    AfterInterrupt,
    Interrupted,
    MeasuringJob,
    OpenWorker,
    WorkerJob,
    run_job,
)
from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.kernels.headers.traits import BROWSER
from webnorm.lab.process import worker
from webnorm.lab.process.worker import WorkerDied
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench, jobs
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem

TASK = Task(OPS["layer_norm"], NormProblem(rows=1, cols=1))


@dataclass(kw_only=True)
class Example(WorkerJob):
    meanwhile: Callable[[], object] = lambda: None
    finished: list[tuple[Any, bool]] = field(default_factory=list)

    def work(self, opened: OpenWorker) -> None:
        self.meanwhile()

    def finish(self, complete: bool) -> None:
        self.finished.append((self.device, complete))

    def status(self) -> int:
        return WRONG

    @property
    def left(self) -> AfterInterrupt:
        return AfterInterrupt.NOTHING


@pytest.fixture(autouse=True)
def adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without a process."""
    monkeypatch.setattr(bench, "device_of", lambda worker: ({"adapter": "an adapter"}, BROWSER))


def interrupt(*_: object) -> Any:
    raise KeyboardInterrupt


def test_a_job_is_finished_and_says_how_the_command_ends() -> None:
    job = Example()
    with pytest.raises(typer.Exit) as ended:
        run_job(job, None, 1.0)
    assert ended.value.exit_code == WRONG
    assert job.finished == [({"adapter": "an adapter"}, True)]


def test_an_interrupted_job_is_finished_too() -> None:
    job = Example(meanwhile=interrupt)
    with pytest.raises(Interrupted, match=r"^interrupted; nothing was finished$"):
        run_job(job, None, 1.0)
    assert job.finished == [({"adapter": "an adapter"}, False)]


@pytest.mark.parametrize(
    ("path", "says"), [(None, "are shown"), (Path("-"), "are shown"), (Path("out.json"), "are kept")]
)
def test_only_results_in_files_are_called_kept(
    path: Path | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found(MeasuringJob):
        found: Sequence[Result] = ()

        begin = work_items = record = record_missing = coverage = cast(Any, None)

        def work(self, opened: OpenWorker) -> None:
            raise KeyboardInterrupt

        def results(self) -> Sequence[Result]:
            return self.found

        def show_results(self) -> None:
            pass

        def finish(self, complete: bool) -> None:
            pass

    job = Found(
        outputs={"--json": path},
        console=Screen(),
        seed=None,
        allow_skipped=False,
    )
    with pytest.raises(Interrupted, match="nothing was finished"):
        run_job(job, None, 1.0)
    problem = NormProblem(rows=1, cols=1)
    job.found = [Result(op="layer_norm", kernel="naive", constants={}, problem=problem, status="pass")]
    with pytest.raises(Interrupted, match=f"finished results {says}"):
        run_job(job, None, 1.0)


def test_a_job_that_is_interrupted_before_its_adapter_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "device_of", interrupt)
    job = Example()
    with pytest.raises(Interrupted):
        run_job(job, None, 1.0)
    assert job.finished == [({}, False)]


def bench_that_is_interrupted(
    known: list[Result], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run `bench` with Ctrl-C in the second of two problems, which already has some results."""

    def interrupted(request: bench.BenchRequest, *_: object) -> Iterator[Any]:
        yield bench.Progress(request.tasks[1], "timing", so_far=lambda: known)
        raise KeyboardInterrupt

    monkeypatch.setenv("WEBNORM_BASELINES", str(folder / "kept"))
    device = dict.fromkeys(("adapter", "backend", "driver", "wgpu"), "some")
    monkeypatch.setattr(bench, "device_of", lambda worker: (device, BROWSER))
    monkeypatch.setattr(bench, "run", interrupted)
    return webnorm(["bench", "--rows", "8", "--cols", "48,64", "--save", "main"], folder)


def test_rounds_that_were_done_are_shown_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = NormProblem(rows=8, cols=64)
    known = [timed("naive", 100.0, problem=problem, flags=("few samples", "interrupted"))]
    done = bench_that_is_interrupted(known, monkeypatch, tmp_path)
    assert (done.returncode, done.stderr) == (130, "webnorm: interrupted; finished results are kept\n")
    outcome, title, *_ = (line for line in done.stdout.splitlines() if "layer_norm, 8x64" in line)
    assert outcome.endswith("; few samples; interrupted") and title == "layer_norm, 8x64 float32"
    kept = tmp_path / "kept" / "main.json"
    assert f"kept as main, from an interrupted run: {kept}" in done.stdout
    (result,) = json.loads(kept.read_text())["results"]
    assert result["flags"] == ["few samples", "interrupted"]


def test_flags_are_explained_that_a_shown_line_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text explains the flags of shown lines only, and only the fastest of all copies has a line."""
    slower = [timed("copy", 9.0, op="copy", flags=("noisy",)), timed("copy", 8.0, op="copy")]
    known = [*slower, timed("naive", 100.0, flags=("throttled",))]
    done = bench_that_is_interrupted(known, monkeypatch, tmp_path)
    assert "\nthrottled: " in done.stdout and "noisy" not in done.stdout


def test_a_line_reports_that_nothing_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = bench_that_is_interrupted([], monkeypatch, tmp_path)
    assert (done.returncode, done.stderr) == (130, "webnorm: interrupted; nothing was finished\n")
    assert "races" not in done.stdout and not [*(tmp_path / "kept").iterdir()]


def test_an_adapter_that_does_not_open_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def died(worker: Any) -> Any:
        raise WorkerDied("gone")

    monkeypatch.setattr(bench, "device_of", died)
    job = Example()
    with pytest.raises(WebnormError, match=r"^opening the adapter failed: gone; `webnorm doctor`"):
        run_job(job, None, 1.0)
    assert job.finished == []


def test_the_progress_bar_is_hidden_for_results() -> None:
    said: list[Any] = []
    opened = OpenWorker(worker.Worker(), BROWSER, lambda text, share: said.append((text, share)))
    events = [bench.Progress(TASK, "timing", "1 of 2", 0.5), "found", bench.Progress(TASK, "timing")]
    for found in opened.found(events):
        said.append(found)
    first = f"timing: 1 of 2, {TASK}", 0.5
    assert said == [first, (None, None), "found", (f"timing: {TASK}", 0.0)]


def test_a_problem_goes_from_checking_to_timing_to_proving() -> None:
    standing = bench._ProblemProgress(TASK, ["copy", "naive"])
    events = [
        jobs.VariantBegan(0),
        jobs.VariantBegan(1),
        timing.RoundDone(1, 4),
        jobs.LeadingVariant(1, 94.4),
        jobs.VariantBegan(0),
    ]
    events += [
        timing.RoundDone(2, 4),
        timing.RoundDone(5, 4),
        jobs.CheckingTimedWork(),
        jobs.VariantBegan(1),
        jobs.VariantBegan(0),
    ]
    steps = [progress for event in events for progress in standing.after(event)]
    assert [one.doing for one in steps] == [
        "checking copy",
        "checking naive",
        "timing round 1 of 4",
        "timing round 2 of 4; naive leads, 94 % of copy",
        "timing round 5 of 4; naive leads, 94 % of copy",
        "proving naive",
        "proving copy",
    ]
    shares = [one.share for one in steps]
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] == 1


def shown_of(steps: Sequence[tuple[float, float]]) -> list[str]:
    """Return the shown times for shares that are done after some seconds."""
    left, shown = TimeLeft(), []
    for share, spent_s in steps:
        left.record(share, spent_s)
        shown.append(left.text(spent_s))
    return shown


def seconds_of(shown: Sequence[str]) -> list[float]:
    """Return the shown estimates in seconds."""
    units = {"s": 1, "min": 60, "h": 3600}
    words = [text.split() for text in shown if text.endswith("left")]
    return [float(number) * units[unit] for number, unit, _ in words]


def test_the_rest_of_even_work_is_shown_once_it_is_known() -> None:
    even = shown_of([(at / 20, 2.0 * at) for at in range(21)])
    assert even[:2] == ["0 s", "2 s"]
    assert even[2:20] == [f"{40 - 2 * at} s left" for at in range(2, 20)]


def test_an_estimate_that_would_grow_is_not_shown() -> None:
    """Compiling comes first, or the last problem is the largest.

    Estimates of 14, 30 and 46 s would follow each other.
    """
    growing = [(0.1, 1.5), (0.2, 3.6), (0.3, 6.0), (0.4, 20.0), (0.5, 30.0), (0.6, 69.0), (0.9, 300.0)]
    assert seconds_of(shown_of(growing)) == []


@pytest.mark.parametrize("seed", range(40))
def test_the_time_left_never_grows(seed: int) -> None:
    """Estimates shrink for steps of any length, for new work and for pauses."""
    rng = random.Random(seed)
    steps, share, spent = [], 0.0, 0.0
    for _ in range(300):
        share = 0.0 if rng.random() < 0.005 else min(1.0, share + rng.random() ** 4 / 20)
        spent += rng.random() ** rng.choice((1, 8)) * rng.choice((0.1, 1, 20))
        steps.append((share, spent))
    shown = seconds_of(shown_of(steps))
    # "1 min" means half a minute to one and a half.
    assert all(after <= before * 1.5 for before, after in pairwise(shown))
    left = TimeLeft()
    rests = []
    for share, spent in steps:
        left.record(share, spent)
        left.text(spent)
        rests.append(left._shown)
    assert rests == sorted(rests, reverse=True)


def test_a_passed_estimate_is_not_shown() -> None:
    left = TimeLeft()
    for at in range(11):
        left.record(at / 20, 1.0 * at)
    assert left.text(12.0) == "8 s left" and left.text(19.6) == "0 s left" and left.text(21.0) == "21 s"


def test_times_in_words() -> None:
    assert [in_words(one) for one in (8.2, 540.0, 18000.0)] == ["8 s", "9 min", "5.0 h"]


def test_the_bar_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar has its own clock, and the terminal is a string."""
    now = 0.0
    left = TimeLeft()
    with Progress(screen._TimeColumn(left), get_time=lambda: now, disable=True) as bar:
        bar.add_task("", total=1.0)
        for at in range(6):
            now = 3.0 * at
            left.record(at / 10, now)
        assert screen._TimeColumn(left).render(bar.tasks[0]).plain == "15 s left"


# The test runs an interrupted command and its clean-up.
_INTERRUPTED = """
import os, signal, sys
from webnorm.cli import app
from webnorm.cli.work.jobs import Interrupted

def complain(text):
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
    sys.stderr.write(text)

class Slow:
    def __set_name__(self, *_):
        raise KeyboardInterrupt

def held_down(_):
    raise Interrupted("stopped")

def in_the_body_of_a_class(_):
    class Class:
        slow = Slow()

app.complain = complain
app._answered = locals()[sys.argv[1]]
app.run()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends a process there")
@pytest.mark.parametrize(
    ("how", "said"), [("held_down", "interrupted; stopped"), ("in_the_body_of_a_class", "")]
)
def test_ctrl_c_is_no_traceback(how: str, said: str) -> None:
    """Ctrl-C can arrive at any place, and many times while the command ends."""
    command = [sys.executable, "-c", _INTERRUPTED, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (INTERRUPTED, said)
