"""What all verbs share that work in a worker: the bar, Ctrl-C and the exit status."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from rich.progress import Progress

from commands import webnorm
from samples import timed
from webnorm.cli.running import WRONG, Interrupted, Job, Left, Measuring, Opened, run
from webnorm.cli.screen import Screen, _TimeLeft
from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.kernels.traits import BROWSER
from webnorm.lab import bench, jobs, worker
from webnorm.lab.results import Result
from webnorm.lab.worker import WorkerDied
from webnorm.norms.ops import OPS, Task
from webnorm.norms.problem import Problem

TASK = Task(OPS["layer_norm"], Problem(rows=1, cols=1))


@dataclass(kw_only=True)
class Example(Job):
    meanwhile: Callable[[], object] = lambda: None
    finished: list[tuple[Any, bool]] = field(default_factory=list)

    def work(self, opened: Opened) -> None:
        self.meanwhile()

    def finish(self, complete: bool) -> None:
        self.finished.append((self.device, complete))

    def status(self) -> int:
        return WRONG

    @property
    def left(self) -> Left:
        return Left.NOTHING


@pytest.fixture(autouse=True)
def adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is opened without a process."""
    monkeypatch.setattr(bench, "device_of", lambda worker: ({"adapter": "an adapter"}, BROWSER))


def interrupt(*_: object) -> Any:
    raise KeyboardInterrupt


def test_a_job_is_finished_and_says_how_the_command_ends() -> None:
    job = Example()
    with pytest.raises(typer.Exit) as ended:
        run(job, None, 1.0)
    assert ended.value.exit_code == WRONG
    assert job.finished == [({"adapter": "an adapter"}, True)]


def test_an_interrupted_job_is_finished_too() -> None:
    job = Example(meanwhile=interrupt)
    with pytest.raises(Interrupted, match=r"^interrupted; nothing was finished by then$"):
        run(job, None, 1.0)
    assert job.finished == [({"adapter": "an adapter"}, False)]


@pytest.mark.parametrize(
    ("path", "says"), [(None, "is shown"), (Path("-"), "is shown"), (Path("out.json"), "is kept")]
)
def test_what_is_in_no_file_is_not_called_kept(
    path: Path | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found(Measuring):
        found: Sequence[Result] = ()

        begin = errands = take = lack = coverage = cast(Any, None)

        def work(self, opened: Opened) -> None:
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
        run(job, None, 1.0)
    problem = Problem(rows=1, cols=1)
    job.found = [Result(op="layer_norm", kernel="naive", constants={}, problem=problem, status="pass")]
    with pytest.raises(Interrupted, match=f"what was finished {says}"):
        run(job, None, 1.0)


def test_a_job_that_is_interrupted_before_its_adapter_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "device_of", interrupt)
    job = Example()
    with pytest.raises(Interrupted):
        run(job, None, 1.0)
    assert job.finished == [({}, False)]


def bench_that_is_interrupted(
    known: list[Result], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Ctrl-C in the second of two problems, of which so much is known."""

    def interrupted(request: bench.BenchRequest, *_: object) -> Iterator[Any]:
        yield bench.Progress(request.tasks[1], "timing", so_far=lambda: known)
        raise KeyboardInterrupt

    monkeypatch.setenv("WEBNORM_BASELINES", str(folder / "kept"))
    device = dict.fromkeys(("adapter", "backend", "driver", "wgpu"), "some")
    monkeypatch.setattr(bench, "device_of", lambda worker: (device, BROWSER))
    monkeypatch.setattr(bench, "run", interrupted)
    return webnorm(["bench", "--rows", "8", "--cols", "48,64", "--save", "main"], folder)


def test_rounds_that_were_done_are_shown_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(rows=8, cols=64)
    known = [timed("naive", 100.0, problem=problem, flags=("few samples", "interrupted"))]
    done = bench_that_is_interrupted(known, monkeypatch, tmp_path)
    assert (done.returncode, done.stderr) == (130, "webnorm: interrupted; what was finished is kept\n")
    outcome, title, *_ = (line for line in done.stdout.splitlines() if "layer_norm, 8x64" in line)
    assert outcome.endswith("; few samples; interrupted") and title == "layer_norm, 8x64 float32"
    kept = tmp_path / "kept" / "main.json"
    assert f"kept as main, of a run that was interrupted: {kept}" in done.stdout
    (result,) = json.loads(kept.read_text())["results"]
    assert result["flags"] == ["few samples", "interrupted"]


def test_flags_are_explained_that_a_shown_line_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all copies the fastest has a line."""
    slower = [timed("copy", 9.0, op="copy", flags=("noisy",)), timed("copy", 8.0, op="copy")]
    known = [*slower, timed("naive", 100.0, flags=("throttled",))]
    done = bench_that_is_interrupted(known, monkeypatch, tmp_path)
    assert "\nthrottled: " in done.stdout and "noisy" not in done.stdout


def test_where_nothing_was_finished_a_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = bench_that_is_interrupted([], monkeypatch, tmp_path)
    assert (done.returncode, done.stderr) == (130, "webnorm: interrupted; nothing was finished by then\n")
    assert "races" not in done.stdout and not [*(tmp_path / "kept").iterdir()]


def test_an_adapter_that_does_not_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def died(worker: Any) -> Any:
        raise WorkerDied("gone")

    monkeypatch.setattr(bench, "device_of", died)
    job = Example()
    with pytest.raises(WebnormError, match=r"^opening the adapter failed: gone; `webnorm doctor`"):
        run(job, None, 1.0)
    assert job.finished == []


def test_progress_goes_to_the_bar_which_is_away_for_what_is_found() -> None:
    said: list[Any] = []
    opened = Opened(worker.Worker(), BROWSER, lambda text, share: said.append((text, share)))
    events = [bench.Progress(TASK, "timing", "1 of 2", 0.5), "found", bench.Progress(TASK, "timing")]
    for found in opened.found(events):
        said.append(found)
    first = f"timing: 1 of 2, {TASK}", 0.5
    assert said == [first, (None, None), "found", (f"timing: {TASK}", 0.0)]


def test_a_problem_goes_from_checking_to_timing_to_proving() -> None:
    standing = bench._Standing(TASK, ["copy", "naive"])
    events = [jobs.Began(0), jobs.Began(1), timing.Round(1, 4), jobs.Leads(1, 94.4), jobs.Began(0)]
    events += [timing.Round(2, 4), timing.Round(5, 4), jobs.Proving(), jobs.Began(1), jobs.Began(0)]
    told = [progress for event in events for progress in standing.heard(event)]
    assert [one.doing for one in told] == [
        "checking copy",
        "checking naive",
        "timing round 1 of 4",
        "timing round 2 of 4; naive leads, 94 % of copy",
        "timing round 5 of 4; naive leads, 94 % of copy",
        "proving naive",
        "proving copy",
    ]
    shares = [one.share for one in told]
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] == 1


@pytest.mark.parametrize(
    ("share", "spent_s", "shown"),
    [(0.5, 8.0, "8 s left"), (0.1, 60.0, "9 min left"), (0.1, 2000.0, "5.0 h left"), (0.01, 8.0, "8 s")],
)
def test_how_long_the_rest_takes_follows_from_what_is_done(share: float, spent_s: float, shown: str) -> None:
    now = 0.0
    with Progress(get_time=lambda: now, disable=True) as shown_by:
        number = shown_by.add_task("", total=1.0)
        now = spent_s
        shown_by.update(number, completed=share)
        assert _TimeLeft().render(shown_by.tasks[0]).plain == shown
