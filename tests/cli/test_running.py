"""What all verbs share that work in a worker: the bar, Ctrl-C and the exit status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import typer

from webnorm.cli.running import WRONG, Interrupted, Job, Opened, run
from webnorm.errors import WebnormError
from webnorm.kernels.traits import BROWSER
from webnorm.lab import bench, worker
from webnorm.lab.bench import Progress
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
    with pytest.raises(Interrupted):
        run(job, None, 1.0)
    assert job.finished == [({"adapter": "an adapter"}, False)]


def test_a_job_that_is_interrupted_before_its_adapter_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "device_of", interrupt)
    job = Example()
    with pytest.raises(Interrupted):
        run(job, None, 1.0)
    assert job.finished == [({}, False)]


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
    events = [Progress(TASK, "timing", "1 of 2", 0.5), "found", Progress(TASK, "timing")]
    for found in opened.found(events):
        said.append(found)
    first = f"1 of 2: {TASK}: timing", 0.5
    assert said == [first, (None, None), "found", (f"{TASK}: timing", 0.0)]
