"""Work items and tasks that tests send to Dask workers."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patience import HANG_S, at_least, hang, until
from webnorm.fleet.work_items import CheckItem, WorkItem
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.process.worker import TaskLimits, Work, Worker
from webnorm.lab.results.result import Result
from webnorm.lab.run import jobs
from webnorm.lab.run.bench import Progress

_busy = threading.Lock()


def alone() -> bool:
    """Return True if no other call runs in this process; take some time, so that calls could overlap."""
    if not _busy.acquire(blocking=False):
        return False
    at_least(0.02)
    _busy.release()
    return True


@dataclass(frozen=True, kw_only=True)
class Hanging(WorkItem):
    """A work item that sends no message, like a kernel that hangs."""

    def run(self, worker: Worker, traits: Traits) -> Iterator[Any]:
        yield from worker.stream(_hang, None)


@dataclass(frozen=True, kw_only=True)
class Waiting(WorkItem):
    """A work item that waits for a file."""

    file: Path
    time_limit_s: float = HANG_S

    def run(self, worker: Worker, traits: Traits) -> Iterator[Any]:
        yield from worker.stream(_wait, self.file)


@dataclass(frozen=True, kw_only=True)
class Strict(CheckItem):
    """A check that limits only the time of kernels named endless, and not of others or of process starts."""

    def run(self, worker: Worker, traits: Traits) -> Iterator[Progress | list[Result]]:
        own = worker.stream

        def stream(work: Work, job: Any, limits: TaskLimits | None = None) -> Iterator[Any]:
            limits = TaskLimits(HANG_S)
            for event in own(work, job, limits):
                if isinstance(event, jobs.VariantBegan):
                    endless = job.variants[event.index].path.stem == "endless"
                    limits.time_limit_s = self.time_limit_s if endless else HANG_S
                yield event

        worker.stream = stream  # type: ignore[method-assign]
        yield from super().run(worker, traits)


def _hang(device: object, job: None) -> Iterator[str]:
    hang()
    yield "awake"


def _wait(device: object, file: Path) -> Iterator[str]:
    until(file.exists)
    yield "awake"
