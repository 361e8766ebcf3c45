"""Work in a worker process: progress while it runs, Ctrl-C, the report at its end, exit statuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import typer

from webnorm.cli.terminal import exit_signals
from webnorm.cli.terminal.streams import complain
from webnorm.cli.work.outputs import (
    Action,
    check_outputs,
    command_line,
    path_with_suffix,
    report_steps,
    run_each_step,
)
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from rich.console import Console

    from webnorm.fleet.work_items import WorkItem
    from webnorm.kernels.headers.traits import Traits
    from webnorm.lab.process.worker import Worker
    from webnorm.lab.results.result import Origin, Report, Result
    from webnorm.lab.run.bench import Progress
    from webnorm.lab.run.requests import Coverage

# The exit statuses. OK: everything that was asked for was checked, and is right. WRONG: something is wrong.
# BAD_USAGE: the command could not begin or end. INCONCLUSIVE: nothing was found to be wrong, but something
# that was asked for could not be checked, or was measured and says nothing.
OK, WRONG, BAD_USAGE, INCONCLUSIVE, INTERRUPTED = 0, 1, 2, 3, 130
Found = TypeVar("Found")


class AfterInterrupt(StrEnum):
    """What Ctrl-C has left of a verb's work, from the least to the most."""

    NOTHING = "nothing was finished by then"
    SHOWN = "what was finished is shown"
    KEPT = "what was finished is kept"


class Interrupted(Exception):
    """Ctrl-C, or a signal that ends the command, after what was finished has been shown and written, if
    anything was. Typer would swallow a KeyboardInterrupt. `left` says what there is of it.
    """

    def __init__(self, left: str = AfterInterrupt.SHOWN) -> None:
        super().__init__(f"{exit_signals.cause()}; {left}")


@dataclass(frozen=True)
class OpenWorker:
    """A worker whose adapter is open, and the bar on which its progress is shown."""

    worker: Worker
    traits: Traits
    update: Callable[[str | None, float | None], None]

    def hide(self) -> None:
        """Take the bar away until there is more progress, so that something can be printed."""
        self.update(None, None)

    def found(self, events: Iterable[Progress | Found]) -> Iterator[Found]:
        """What is found among events, each while the bar is away; progress goes to the bar."""
        from webnorm.lab.run.bench import Progress

        for event in events:
            if isinstance(event, Progress):
                self.update(str(event), event.share)
            else:
                self.hide()
                yield event


@dataclass(kw_only=True)
class WorkerJob(ABC):
    """What a verb does in a worker. `device` describes its adapter, and is empty until that is open."""

    device: Mapping[str, Any] = field(default_factory=dict, init=False)

    @abstractmethod
    def work(self, opened: OpenWorker) -> None:
        """Do it, and save and show what is finished; Ctrl-C ends this at any moment."""

    @abstractmethod
    def finish(self, complete: bool) -> None:
        """Save and show what has not been; not `complete` after Ctrl-C."""

    def status(self) -> int:
        """The exit status of a job that came to its end."""
        return OK

    @property
    @abstractmethod
    def left(self) -> AfterInterrupt:
        """What there is of it after Ctrl-C."""


@dataclass(kw_only=True)
class SharedJob(WorkerJob):
    """A job that can be done by others, too, as errands. `times` tells whether something is timed, and
    `for_cards` whether equal cards whose copies differ are each to do all of it: what is found is then of a
    card, and not of a platform.
    """

    console: Console
    times = True
    for_cards = True

    @abstractmethod
    def begin(self, traits: Traits) -> None:
        """Say what is done, as soon as `device` and its traits are known."""

    @abstractmethod
    def errands(self, time_limit_s: float, workers: int) -> Sequence[WorkItem]:
        """What so many workers are asked for."""

    @abstractmethod
    def take(self, at: int, found: Any) -> None:
        """Save and show what came of an errand."""

    @abstractmethod
    def lack(self, at: int, reason: str, lost: bool) -> None:
        """The same where nothing did: the errand was refused, or it was `lost` with the workers."""

    @abstractmethod
    def of_platform(self, name: str) -> Self:
        """The job of one of several platforms; WebnormError where it makes sense for a single one only."""


def run_job(job: WorkerJob, adapter: str | None, time_limit_s: float) -> NoReturn:
    """Do a job in a worker on an adapter, finish it after Ctrl-C too, and end the command with its status."""
    from webnorm.cli.terminal.screen import progress
    from webnorm.lab.process.worker import Worker, explain_worker_failure
    from webnorm.lab.run import bench

    complete = False
    with (
        Worker(adapter, time_limit_s) as worker,
        progress("opening the adapter") as update,
        suppress(KeyboardInterrupt),
    ):
        with explain_worker_failure("opening the adapter", "; `webnorm doctor` lists them"):
            job.device, traits = bench.device_of(worker)
        job.work(OpenWorker(worker, traits, update))
        complete = True
    job.finish(complete)
    if not complete:
        raise Interrupted(job.left)
    raise typer.Exit(job.status())


def _origin() -> Origin:
    from webnorm.lab.results.result import origin_of

    return origin_of(command_line())


@dataclass(kw_only=True)
class MeasuringJob(SharedJob):
    """A job whose results go where `outputs` (paths by their options, as in check_outputs) say.

    `seed` is None where nothing was drawn; `done` says what is done to a kernel. Where a part of what
    `coverage` asks for was skipped, the status says so, unless `allow_skipped`. `lost` counts the problems
    that no worker of a cluster was left for.
    """

    outputs: Mapping[str, Path | None]
    seed: int | None
    allow_skipped: bool
    origin: Origin = field(default_factory=_origin)
    lost: int = field(default=0, init=False)
    done = ""

    @property
    @abstractmethod
    def coverage(self) -> Coverage:
        """What was asked for by its name."""

    @abstractmethod
    def results(self) -> Sequence[Result]:
        """All that was found so far."""

    def of_platform(self, name: str) -> Self:
        """The job of one of several platforms, which has files of its own."""
        for flag, path in self.outputs.items():
            if str(path) == "-":
                raise WebnormError(f"{flag} is -, and there are several platforms: choose one by --adapter")
        outputs = {flag: path_with_suffix(path, name) for flag, path in self.outputs.items()}
        check_outputs(outputs)
        return replace(self, outputs=outputs, origin=_origin())

    @property
    def left(self) -> AfterInterrupt:
        """Results are kept in files alone."""
        if not self.results():
            return AfterInterrupt.NOTHING
        written = any(path is not None and str(path) != "-" for path in self.outputs.values())
        return AfterInterrupt.KEPT if written else AfterInterrupt.SHOWN

    @abstractmethod
    def show_results(self) -> None:
        """Print what has not been printed."""

    def report(self, complete: bool = False) -> Report:
        """The results so far."""
        from webnorm.lab.results.result import Report

        return Report(
            device=self.device,
            results=tuple(self.results()),
            complete=complete and not self.lost,
            origin=self.origin,
        )

    def finish(self, complete: bool) -> None:
        """Write, print and draw; an output that fails costs no other."""
        from webnorm.lab.plot import throughput

        report, picture = self.report(complete), self.outputs.get("--plot")
        drawn = [partial(throughput.plot, report, picture)] if picture is not None and report.results else []
        saved, printed = report_steps(report, self.outputs)
        # Another library draws, which may fail or hang: everything else comes first.
        run_each_step(*saved, self._show, *printed, *self.further(report), *drawn)

    def further(self, report: Report) -> Sequence[Action]:
        """What is done with a report that has been shown."""
        return ()

    def _show(self) -> None:
        from webnorm.cli.work.overview import race_line

        if not self.results():
            return
        self.show_results()
        drawn = "" if self.seed is None else f"drawn with --seed {self.seed}"
        if said := "; ".join(filter(None, (race_line(self.results()), drawn))):
            self.console.print(said)

    def status(self) -> int:
        """Whether a kernel is wrong, else a part of the request could not be checked: a line on stderr
        lists those parts.
        """
        from webnorm.lab.run import bench
        from webnorm.lab.run.requests import first_names

        results = self.results()
        if bench.has_failures(results):
            return WRONG
        if self.lost:
            problems = "1 problem" if self.lost == 1 else f"{self.lost} problems"
            complain(f"not {self.done}: {problems}, for which no worker was left")
            return INCONCLUSIVE
        unchecked = self.coverage.unchecked(results)
        if self.allow_skipped or not unchecked:
            return OK
        complain(f"not {self.done}: {first_names(unchecked)} (--allow-skipped admits that)")
        return INCONCLUSIVE
