"""`webnorm tune`: find and record the fastest kernel for each problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from typer import Exit, Option

from webnorm.cli.options import shared
from webnorm.cli.options.values import option_pairs, size_lists
from webnorm.cli.terminal.screen import Screen
from webnorm.cli.terminal.streams import complain, say
from webnorm.cli.work.cluster import run_on
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, AfterInterrupt, OpenWorker, SharedJob
from webnorm.cli.work.model_norms import model_problems, norms_text
from webnorm.cli.work.outputs import path_with_suffix
from webnorm.errors import WebnormError
from webnorm.gpu import seconds

if TYPE_CHECKING:
    from webnorm.choice.tuning import Platform, TunedChoice, Tuning
    from webnorm.fleet.work_items import WorkItem
    from webnorm.kernels.headers.traits import Traits
    from webnorm.lab.run.tune import TuneRequest, TuneResult
    from webnorm.op.op import Task


def tune(
    op: Annotated[
        str | None,
        Option(
            help="Tune these ops: an op, a folder with an op.py, a list of them, or a pattern such as "
            "'rms*'. Default: all."
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        Option(
            help="Set the storage types: float32, float16, bfloat16, a list of them, or all. "
            "Default: float32 and float16."
        ),
    ] = None,
    rows: Annotated[
        str | None,
        Option(
            help="Set the number of rows: a number, a list such as 1024,4k, or a range such as 256..4k. "
            "Default: enough for an x of 64 MiB, or few on a software adapter."
        ),
    ] = None,
    cols: Annotated[
        str | None,
        Option(
            help="Set the number of columns: a number, a list such as 768,4k, or a range such as 256..4k. "
            "Default: 256..16k."
        ),
    ] = None,
    size: shared.Sizes = None,
    preset: Annotated[
        str | None, Option(help="Tune the tasks of a named workload instead. `help` lists the workloads.")
    ] = None,
    model: shared.Model = None,
    dim: shared.Dims = None,
    option: shared.Option = None,
    no_weight: shared.NoWeight = False,
    no_bias: shared.NoBias = False,
    quick: Annotated[
        bool,
        Option(
            "--quick",
            help="Tune one small float32 problem of each op, or a few of the preset. Each takes some "
            "seconds.",
        ),
    ] = False,
    budget: Annotated[
        float | None,
        Option(
            help="Spend at most this many seconds on each problem, checks not included. Default: 20, or 6 "
            "with --quick.",
            min=0.1,
            max=seconds.MOST,
        ),
    ] = None,
    retune: Annotated[bool, Option("--retune", help="Also tune problems that are already recorded.")] = False,
    show_recorded: Annotated[bool, Option("--list", help="Show the recorded choices and exit.")] = False,
    remove: Annotated[bool, Option("--remove", help="Remove the recorded choices and exit.")] = False,
    out: Annotated[
        Path | None, Option(help="Use this tuning file. Default: a file in your cache folder.")
    ] = None,
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
    cluster: shared.Cluster = None,
    time_limit: shared.TimeLimit = 60.0,
) -> None:
    """Recorded problems are not tuned again, so an interrupted run continues where it stopped."""
    from webnorm.cli.work.overview import show_presets
    from webnorm.gpu.device import find_adapter
    from webnorm.lab.run import tune
    from webnorm.op.presets import model_tasks, preset_tasks
    from webnorm.op.registry import computing_ops, not_computing
    from webnorm.op.selection import dtypes_named, select_names

    ops = None if op is None else select_names(op, computing_ops(), "op", elsewhere=not_computing())
    if preset == "help":
        return show_presets()
    console = Screen()
    if show_recorded or remove:
        return _recorded(find_adapter(adapter).description(), out, console if show_recorded else None)
    shapes = size_lists(size, rows, cols)
    given, norms = option_pairs(option, no_weight, no_bias), model_problems(model, dim, dtype)

    def tasks(software: bool) -> tuple[Task, ...]:
        if norms.tasks:
            return model_tasks(norms.tasks, software, quick)
        common = dtypes_named(dtype), given, software, quick
        if preset is not None:
            return preset_tasks(preset, *common, {})
        return tune.tuning_tasks(ops, shapes, *common)

    job = _Tune(
        console=console,
        tasks=tasks,
        out=out,
        retune=retune,
        budget_s=budget or (6.0 if quick else 20.0),
        skipped=norms.skipped,
    )
    if cluster is None:
        # A run with only recorded problems needs no device.
        info = find_adapter(adapter)
        job.device = info.description()
        job.begin(info.traits)
        if not job.request.tasks:
            raise Exit(job.status())
    run_on(cluster, job, adapter, time_limit)


def _recorded(device: Mapping[str, Any], out: Path | None, console: Screen | None) -> None:
    """Show the recorded choices of a device on a console, or remove them without a console."""
    from webnorm.choice import tuning
    from webnorm.cli.work import overview

    platform = tuning.Platform.of(device)
    path = out or tuning.path_of(platform)
    if console is None:
        say(f"removed {path}" if tuning.forget(path) else f"{path} does not exist")
    elif not path.exists():
        console.print(f"nothing is recorded: {path} does not exist", soft_wrap=True)
    else:
        recorded = tuning.read(path)
        objection = recorded.objection(platform)
        if objection is not None:
            complain(f"the tuning {path} does not apply here: {objection}")
        console.print(overview.tuning_table(recorded))


@dataclass(kw_only=True)
class _Tune(SharedJob):
    """The work of `webnorm tune`.

    `tasks` returns the tasks for a software adapter (True) or another one. `unsaved` choices are not in the
    file yet. `skipped` are the norms of --model that this version cannot run.
    """

    tasks: Callable[[bool], tuple[Task, ...]]
    out: Path | None
    retune: bool
    budget_s: float
    skipped: Sequence[str] = ()
    request: TuneRequest = field(init=False)
    platform: Platform = field(init=False)
    recorded: Tuning = field(init=False)
    unsaved: list[TunedChoice] = field(default_factory=list, init=False)
    saved: int = field(default=0, init=False)
    lacking: list[Task] = field(default_factory=list, init=False)
    for_cards = False

    @property
    def path(self) -> Path:
        """The tuning file."""
        from webnorm.choice import tuning

        return self.out or tuning.path_of(self.platform)

    def begin(self, traits: Traits) -> None:
        from webnorm.choice import tuning
        from webnorm.cli.work.overview import device_line
        from webnorm.kernels.headers.library import discover
        from webnorm.lab.run import tune

        self.console.print(device_line(self.device))
        self.platform = tuning.Platform.of(self.device)
        self.recorded, note = tuning.resume(self.path, self.platform)
        if note is not None:
            complain(note)
        asked = self.tasks(traits.software)
        left = tuple(task for task in asked if self.retune or not self.recorded.has(task))
        if len(left) < len(asked):
            recorded = f"{len(asked) - len(left)} of {len(asked)} problems are recorded"
            self.console.print(f"{recorded} and not tuned again")
        if left:
            tuning.prepare(self.path)
        self.request = tune.TuneRequest(left, tuple(discover()), self.budget_s)

    def work(self, opened: OpenWorker) -> None:
        from webnorm.lab.run import tune

        for at, tuned in enumerate(opened.found(tune.run(self.request, opened.worker, opened.traits))):
            self.record(at, tuned)

    def work_items(self, time_limit_s: float, workers: int) -> Sequence[WorkItem]:
        from webnorm.fleet.work_items import TuneItem

        return [
            TuneItem(time_limit_s=time_limit_s, task=task, budget_s=self.request.budget_s)
            for task in self.request.tasks
        ]

    def record(self, at: int, found: TuneResult) -> None:
        from webnorm.cli.work.overview import tuned_lines

        if found.choice is None:
            self.lacking.append(found.task)
        else:
            self.unsaved.append(found.choice)
            # If this fails the choice is still shown, and the next attempt reports the error.
            with suppress(WebnormError):
                self._save()
        self.console.print(tuned_lines(found), soft_wrap=True)

    def record_missing(self, at: int, reason: str, lost: bool) -> None:
        self.lacking.append(self.request.tasks[at])
        self.console.print(f"{self.request.tasks[at]}: error: {reason}", soft_wrap=True)

    def of_platform(self, name: str) -> Self:
        return replace(self, out=path_with_suffix(self.out, name))

    def _save(self) -> None:
        from webnorm.choice import tuning

        if self.unsaved:
            waiting = partial(complain, f"waiting for another process that is writing {self.path}")
            self.recorded = tuning.record(self.unsaved, self.path, self.platform, waiting)
            self.saved += len(self.unsaved)
            self.unsaved.clear()

    @property
    def left(self) -> AfterInterrupt:
        """The state of the work after Ctrl-C: choices are in the tuning file."""
        return AfterInterrupt.KEPT if self.saved else AfterInterrupt.NOTHING

    def finish(self, complete: bool) -> None:
        self._save()
        count = len(self.recorded.choices)
        if count:
            choices = "choice is" if count == 1 else "choices are"
            self.console.print(f"{count} {choices} in {self.path}", soft_wrap=True)

    def status(self) -> int:
        """Return OK if every problem has a choice; else list the others on stderr."""
        from webnorm.lab.run.requests import first_names

        lacking = [str(task) for task in self.lacking]
        if self.skipped:
            lacking.insert(0, norms_text(self.skipped))
        if not lacking:
            return OK
        complain(f"not tuned: {first_names(lacking)}")
        return INCONCLUSIVE
