"""Work items: the unit of work for one worker, such as one problem of a benchmark or some cases of a check.

A work item contains everything that it needs. It runs on any machine with a lab worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from webnorm.calls.transfers import TransferJob, time_transfers
from webnorm.choice.defaults import chosen_variants
from webnorm.choice.tuning import Tuning
from webnorm.errors import WebnormError
from webnorm.fleet.shipped_files import ShippedFiles, UnpackedFiles
from webnorm.gpu import timing
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.process.worker import Worker
from webnorm.lab.results.result import Calls, Result
from webnorm.lab.run import bench, check, requests, tune
from webnorm.lab.run.bench import Progress
from webnorm.op.corpus import Overrides, whole_corpus
from webnorm.op.op import Task
from webnorm.op.registry import OPS

# Bytes of x on a GPU and on a software adapter, which runs on the CPU and has its caches.
_COPIED, _COPIED_BY_SOFTWARE = 256 << 20, 4 << 20
_COPIED_COLS = 4096
Events = Iterator[Progress | list[Result]]


@dataclass(frozen=True, kw_only=True)
class WorkItem(ABC):
    """The base class of work items.

    `time_limit_s` is how long a running kernel may send no message. If `alone`, no other item may run on the
    adapter at the same time, and for a software adapter none on the machine.
    """

    time_limit_s: float
    alone = True

    @abstractmethod
    def run(self, worker: Worker, traits: Traits) -> Iterator[Progress | Any]:
        """Yield progress and results; the last result counts. Raises WebnormError for a user's mistake."""


@dataclass(frozen=True, kw_only=True)
class KernelWorkItem(WorkItem):
    """A work item with kernels; the fields are arguments of `requests.bench_request`."""

    files: ShippedFiles
    ops: tuple[str, ...]
    chosen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    every: bool = False
    tuning: Tuning | None = None

    def run(self, worker: Worker, traits: Traits) -> Events:
        """Yield progress and results, with the sender's names of files."""
        with self.files.unpacked() as files:
            try:
                for event in self.results(files, worker, traits):
                    yield event if isinstance(event, Progress) else [files.restored(one) for one in event]
            except WebnormError as error:
                raise WebnormError(files.restored_text(str(error))) from error

    @abstractmethod
    def results(self, files: UnpackedFiles, worker: Worker, traits: Traits) -> Events:
        """Yield progress and results."""


@dataclass(frozen=True, kw_only=True)
class BenchItem(KernelWorkItem):
    """A problem to time: see BenchRequest. With `profile` the fastest result has transfer times."""

    task: Task
    rule: timing.StoppingRule
    runs: int = 1
    calls: Calls = "one by one"
    profile: bool = False

    def results(self, files: UnpackedFiles, worker: Worker, traits: Traits) -> Events:
        """Yield progress and the problem's results."""
        asked_for = requests.bench_request(
            files.names, self.ops, roots=files.roots, chosen=self.chosen, every=self.every, rule=self.rule
        )
        request = replace(asked_for, tasks=(self.task,), tuning=self.tuning, runs=self.runs, calls=self.calls)
        found: list[Result] = []
        for event in bench.run(request, worker, traits):
            if isinstance(event, Progress):
                yield event
            else:
                found = event
        yield profiled(found, worker, self.rule) if self.profile else found


@dataclass(frozen=True, kw_only=True)
class CheckItem(KernelWorkItem):
    """Some tasks of a check: the fraction `part` (see CheckRequest). `model` are a model's norms."""

    cases: str | None
    seed: int
    dtype: str | None
    changes: Overrides
    part: tuple[int, int]
    model: tuple[Task, ...] = ()
    alone = False

    def results(self, files: UnpackedFiles, worker: Worker, traits: Traits) -> Events:
        """Yield progress and the cases' results."""
        asked_for = requests.check_request(
            files.names, self.ops, roots=files.roots, chosen=self.chosen, every=self.every
        )
        if self.model:
            whole = requests.with_model(asked_for, self.model, self.seed)
        else:
            corpus = whole_corpus(self.seed, self.ops)
            whole = requests.with_cases(asked_for, corpus, self.cases, files.input, self.dtype, self.changes)
        request = replace(whole, tuning=self.tuning, part=self.part)
        expected, found = max(1, request.count()), list[Result]()
        for result in check.case_results(request, worker, traits):
            found.append(result)
            task = Task(request.tasks[0][1].op, result.problem)
            yield Progress(task, f"{result.case}: {result.kernel}", share=min(1.0, len(found) / expected))
        yield found


@dataclass(frozen=True, kw_only=True)
class TuneItem(WorkItem):
    """A problem to tune: see TuneRequest."""

    task: Task
    budget_s: float

    def run(self, worker: Worker, traits: Traits) -> Iterator[Progress | tune.TuneResult]:
        """Yield progress and the tuning."""
        yield from tune.run(tune.TuneRequest((self.task,), tuple(discover()), self.budget_s), worker, traits)


@dataclass(frozen=True, kw_only=True)
class CopyItem(WorkItem):
    """The copy's timings on this card, with more bytes than a cache can contain.

    A GPU tries all constants. A software adapter uses the default ones, which are as fast there.
    """

    def run(self, worker: Worker, traits: Traits) -> Events:
        """Yield progress and the copy's results."""
        size = _COPIED_BY_SOFTWARE if traits.software else _COPIED
        task = Task(OPS["copy"], OPS["copy"].problem(size // (4 * _COPIED_COLS), _COPIED_COLS))
        kernels = [kernel for kernel in discover() if kernel.op is task.op]
        copies = [
            one
            for kernel in kernels
            for one in chosen_variants(kernel, task.problem, traits, {}, every=not traits.software)
        ]
        yield from bench.measure(task, copies, timing.QUICK, (), worker, traits, repeated=True)


def profiled(found: Sequence[Result], worker: Worker, rule: timing.StoppingRule) -> list[Result]:
    """Add transfer times to the fastest of a problem's results: see bench.profiled."""
    return bench.profiled(
        found, lambda task, kernel: worker.stream(time_transfers, TransferJob(task, kernel, rule))
    )
