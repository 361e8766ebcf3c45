"""What a Dask worker of a test is given that is nothing of webnorm's."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patience import HANG_S, at_least, hang, until
from webnorm.fleet.errand import CheckErrand, Errand
from webnorm.kernels.traits import Traits
from webnorm.lab import jobs
from webnorm.lab.bench import Progress
from webnorm.lab.results import Result
from webnorm.lab.worker import Ticket, Work, Worker

_busy = threading.Lock()


def alone() -> bool:
    """Whether nobody else does this in the process, for a moment in which others could begin."""
    if not _busy.acquire(blocking=False):
        return False
    at_least(0.02)
    _busy.release()
    return True


@dataclass(frozen=True, kw_only=True)
class Hanging(Errand):
    """It gives no sign of life, as a kernel that hangs."""

    def run(self, worker: Worker, traits: Traits) -> Iterator[Any]:
        yield from worker.stream(_hang, None)


@dataclass(frozen=True, kw_only=True)
class Waiting(Errand):
    """It waits for a file."""

    file: Path
    time_limit_s: float = HANG_S

    def run(self, worker: Worker, traits: Traits) -> Iterator[Any]:
        yield from worker.stream(_wait, self.file)


@dataclass(frozen=True, kw_only=True)
class Strict(CheckErrand):
    """Its limit is of kernels called endless; others, and a child that is started, have all the time."""

    def run(self, worker: Worker, traits: Traits) -> Iterator[Progress | list[Result]]:
        own = worker.stream

        def stream(work: Work, job: Any, ticket: Ticket | None = None) -> Iterator[Any]:
            ticket = Ticket(HANG_S)
            for event in own(work, job, ticket):
                if isinstance(event, jobs.Began):
                    endless = job.variants[event.index].path.stem == "endless"
                    ticket.time_limit_s = self.time_limit_s if endless else HANG_S
                yield event

        worker.stream = stream  # type: ignore[method-assign]
        yield from super().run(worker, traits)


def _hang(device: object, job: None) -> Iterator[str]:
    hang()
    yield "awake"


def _wait(device: object, file: Path) -> Iterator[str]:
    until(file.exists)
    yield "awake"
