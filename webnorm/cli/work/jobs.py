"""Work in a worker process: progress, Ctrl-C, the report at the end, exit statuses."""

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
from webnorm.cli.work.model_norms import norms_text
from webnorm.cli.work.outputs import (
    Action,
    check_outputs,
    command_line,
    path_with_suffix,
    report_steps,
    run_each_step,
)
from webnorm.errors import WebnormError, counted

if TYPE_CHECKING:
    from rich.console import Console

    from webnorm.fleet.work_items import WorkItem
    from webnorm.kernels.headers.traits import Traits
    from webnorm.lab.process.worker import Worker
    from webnorm.lab.results.result import Origin, Report, Result
    from webnorm.lab.run.bench import Progress
    from webnorm.lab.run.requests import Coverage

# The exit statuses. OK: everything was checked and is right. WRONG: something is wrong. BAD_USAGE: the
# command could not begin or end. INCONCLUSIVE: nothing was found to be wrong, but something could not be
# checked, or the measurements decide nothing.
OK, WRONG, BAD_USAGE, INCONCLUSIVE, INTERRUPTED = 0, 1, 2, 3, 130
Found = TypeVar("Found")


class AfterInterrupt(StrEnum):
    """The state of a verb's work after Ctrl-C, from the least to the most."""

    NOTHING = "nothing was finished"
    SHOWN = "finished results are shown"
    KEPT = "finished results are kept"


class Interrupted(Exception):
    """Ctrl-C, or a signal that ends the command, after finished results were shown and written.

    Typer would swallow a KeyboardInterrupt. `left` describes the state of the work.
    """

    def __init__(self, left: str = AfterInterrupt.SHOWN) -> None:
        super().__init__(f"{exit_signals.cause()}; {left}")


@dataclass(frozen=True)
class OpenWorker:
    """A worker with an open adapter, and the progress bar of its work."""

    worker: Worker
    traits: Traits
    update: Callable[[str | None, float | None], None]

    def hide(self) -> None:
        """Hide the bar until the next progress, so that something can be printed."""
        self.update(None, None)

    def found(self, events: Iterable[Progress | Found]) -> Iterator[Found]:
        """Yield the results among `events` while the bar is hidden; progress goes to the bar."""
        from webnorm.lab.run.bench import Progress

        for event in events:
            if isinstance(event, Progress):
                self.update(str(event), event.share)
            else:
                self.hide()
                yield event


@dataclass(kw_only=True)
class WorkerJob(ABC):
    """A verb's work in a worker process. `device` describes the adapter and is empty until it is open."""

    device: Mapping[str, Any] = field(default_factory=dict, init=False)

    @abstractmethod
    def work(self, opened: OpenWorker) -> None:
        """Do the work, and save and show results. Ctrl-C can end this at any moment."""

    @abstractmethod
    def finish(self, complete: bool) -> None:
        """Save and show the remaining results; `complete` is False after Ctrl-C."""

    def status(self) -> int:
        """Return the exit status of a completed job."""
        return OK

    @property
    @abstractmethod
    def left(self) -> AfterInterrupt:
        """The state of the work after Ctrl-C."""


@dataclass(kw_only=True)
class SharedJob(WorkerJob):
    """A job that workers of a cluster can do, as work items.

    `times` is True if the job times kernels. `for_cards` is True if equal cards with different copy speeds
    each do the whole job: results then belong to a card and not to a platform.
    """

    console: Console
    times = True
    for_cards = True

    @abstractmethod
    def begin(self, traits: Traits) -> None:
        """Prepare and announce the work, once `device` and its traits are known."""

    @abstractmethod
    def work_items(self, time_limit_s: float, workers: int) -> Sequence[WorkItem]:
        """Return the work items for this number of workers."""

    @abstractmethod
    def record(self, at: int, found: Any) -> None:
        """Save and show the result of work item `at`."""

    @abstractmethod
    def record_missing(self, at: int, reason: str, lost: bool) -> None:
        """Save and show that work item `at` has no result: it was refused, or `lost` with the workers."""

    @abstractmethod
    def of_platform(self, name: str) -> Self:
        """Return the job of one of several platforms; raise WebnormError if there can be only one."""


def run_job(job: WorkerJob, adapter: str | None, time_limit_s: float, engine: str | None = None) -> NoReturn:
    """Do a job in a worker process, finish it even after Ctrl-C, and end the command with its status."""
    complete = do_work(job, adapter, time_limit_s, engine)
    job.finish(complete)
    if not complete:
        raise Interrupted(job.left)
    raise typer.Exit(job.status())


def do_work(job: WorkerJob, adapter: str | None, time_limit_s: float, engine: str | None) -> bool:
    """Do the work of a job on an adapter, or in an engine. Return False after Ctrl-C."""
    from webnorm.cli.terminal.screen import progress
    from webnorm.lab.process.worker import Worker, explain_worker_failure
    from webnorm.lab.run import bench

    what = "opening the adapter" if engine is None else f"starting {engine}"
    complete = False
    with (
        Worker(adapter, time_limit_s, engine=engine) as worker,
        progress(what) as update,
        suppress(KeyboardInterrupt),
    ):
        lists = "" if engine is None else " --engine all"
        with explain_worker_failure(what, f"; `webnorm doctor{lists}` lists them"):
            job.device, traits = bench.device_of(worker)
        job.work(OpenWorker(worker, traits, update))
        complete = True
    return complete


def _origin() -> Origin:
    from webnorm.lab.results.result import origin_of

    return origin_of(command_line())


@dataclass(kw_only=True)
class MeasuringJob(SharedJob):
    """A job that writes its results to `outputs`, which are paths by option as in check_outputs.

    `seed` is None if no random numbers were drawn. `done` is the participle for messages, such as "timed".
    The status shows if a part of `coverage` was skipped, unless `allow_skipped` is set. `lost` counts the
    problems that were lost with a cluster's workers.
    """

    outputs: Mapping[str, Path | None]
    seed: int | None
    allow_skipped: bool
    origin: Origin = field(default_factory=_origin)
    lost: int = field(default=0, init=False)
    # One line for each norm of --model that this version cannot run.
    skipped: Sequence[str] = ()
    # The engine of a job that is one of several, whose results one table shows.
    engine: str | None = None
    done = ""

    @property
    @abstractmethod
    def coverage(self) -> Coverage:
        """The ops, types, kernels and cases that the user named."""

    @abstractmethod
    def results(self) -> Sequence[Result]:
        """Return all results so far."""

    def of_platform(self, name: str) -> Self:
        """Return the job of one of several platforms, with its own files."""
        for flag, path in self.outputs.items():
            if str(path) == "-":
                raise WebnormError(f"{flag} is -, but there are several platforms; choose one with --adapter")
        outputs = {flag: path_with_suffix(path, name) for flag, path in self.outputs.items()}
        check_outputs(outputs)
        return replace(self, outputs=outputs, origin=_origin())

    @property
    def left(self) -> AfterInterrupt:
        """The state after Ctrl-C: results are kept only if they are written to files."""
        if not self.results():
            return AfterInterrupt.NOTHING
        written = any(path is not None and str(path) != "-" for path in self.outputs.values())
        return AfterInterrupt.KEPT if written else AfterInterrupt.SHOWN

    @abstractmethod
    def show_results(self) -> None:
        """Print the results that have not been printed yet."""

    def report(self, complete: bool = False) -> Report:
        """Return a report of the results so far."""
        from webnorm.lab.results.result import Report

        return Report(
            device=self.device,
            results=tuple(self.results()),
            complete=complete and not self.lost,
            origin=self.origin,
        )

    def finish(self, complete: bool) -> None:
        """Write, print and plot the results. If one output fails, the others still succeed."""
        from webnorm.lab.plot import throughput

        report, picture = self.report(complete), self.outputs.get("--plot")
        drawn = [partial(throughput.plot, report, picture)] if picture is not None and report.results else []
        saved, printed = report_steps(report, self.outputs)
        # The plot comes last, because the plotting library may fail or hang.
        run_each_step(*saved, self._show, *printed, *self.final_steps(report), *drawn)

    def final_steps(self, report: Report) -> Sequence[Action]:
        """Return the steps after a report has been shown."""
        return ()

    def _show(self) -> None:
        from webnorm.cli.work.overview import race_line

        if not self.results() or self.engine is not None:
            return
        self.show_results()
        seed = "" if self.seed is None else f"--seed {self.seed} repeats the inputs"
        if said := "; ".join(filter(None, (race_line(self.results()), seed))):
            self.console.print(said)

    def status(self) -> int:
        """Return WRONG for a wrong kernel, else INCONCLUSIVE if parts of the request could not be checked.

        A line on stderr lists these parts.
        """
        from webnorm.lab.run import bench
        from webnorm.lab.run.requests import first_names

        results = self.results()
        what = self.done if self.engine is None else f"{self.done} in {self.engine}"
        if bench.has_failures(results):
            return WRONG
        if self.lost:
            complain(f"not {what}: {counted(self.lost, 'problem')}, because no worker was left")
            return INCONCLUSIVE
        unchecked = [*([norms_text(self.skipped)] if self.skipped else []), *self.coverage.unchecked(results)]
        if self.allow_skipped or not unchecked:
            return OK
        complain(f"not {what}: {first_names(unchecked)} (--allow-skipped accepts this)")
        return INCONCLUSIVE
