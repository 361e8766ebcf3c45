"""Work in a worker process: progress while it runs, Ctrl-C, what is left to do at its end, exit statuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from webnorm.kernels.traits import Traits
    from webnorm.lab.bench import Progress
    from webnorm.lab.worker import Worker

OK, WRONG, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
Found = TypeVar("Found")


class Interrupted(Exception):
    """Ctrl-C, after what was finished has been shown and written. Typer would swallow a KeyboardInterrupt."""


@dataclass(frozen=True)
class Opened:
    """A worker whose adapter is open, and the bar on which its progress is shown."""

    worker: Worker
    traits: Traits
    update: Callable[[str | None, float | None], None]

    def hide(self) -> None:
        """Take the bar away until there is more progress, so that something can be printed."""
        self.update(None, None)

    def found(self, events: Iterable[Progress | Found]) -> Iterator[Found]:
        """What is found among events, each while the bar is away; progress goes to the bar."""
        from webnorm.lab.bench import Progress

        for event in events:
            if isinstance(event, Progress):
                self.update(str(event), event.share)
            else:
                self.hide()
                yield event


@dataclass(kw_only=True)
class Job(ABC):
    """What a verb does in a worker. `device` describes its adapter, and is empty until that is open."""

    device: Mapping[str, Any] = field(default_factory=dict, init=False)

    @abstractmethod
    def work(self, opened: Opened) -> None:
        """Do it, and save and show what is finished; Ctrl-C ends this at any moment."""

    @abstractmethod
    def finish(self, complete: bool) -> None:
        """Save and show what has not been; not `complete` after Ctrl-C."""

    def status(self) -> int:
        """The exit status of a job that came to its end."""
        return OK


def run(job: Job, adapter: str | None, time_limit_s: float) -> NoReturn:
    """Do a job in a worker on an adapter, finish it after Ctrl-C too, and end the command with its status."""
    from webnorm.cli.screen import progress
    from webnorm.lab import bench
    from webnorm.lab.worker import Worker, failing

    complete = False
    with (
        Worker(adapter, time_limit_s) as worker,
        progress("opening the adapter") as update,
        suppress(KeyboardInterrupt),
    ):
        with failing("opening the adapter", "; `webnorm doctor` lists them"):
            job.device, traits = bench.device_of(worker)
        job.work(Opened(worker, traits, update))
        complete = True
    job.finish(complete)
    if not complete:
        raise Interrupted
    raise typer.Exit(job.status())
