"""What one worker is asked for: one problem with all that is timed beside it, or some cases of a check.

An errand has all that it needs. It runs anywhere with a lab's worker, and knows nothing of who sent it.
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

# Bytes of x; a program on the CPU needs no more than a moment, and has the CPU's caches.
_COPIED, _COPIED_BY_SOFTWARE = 256 << 20, 4 << 20
_COPIED_COLS = 4096
Events = Iterator[Progress | list[Result]]


@dataclass(frozen=True, kw_only=True)
class WorkItem(ABC):
    """`time_limit_s`: how long a kernel may be silent, from when it runs. `alone`: whether nothing else may
    run on the adapter, or on its machine where that is the adapter.
    """

    time_limit_s: float
    alone = True

    @abstractmethod
    def run(self, worker: Worker, traits: Traits) -> Iterator[Progress | Any]:
        """Yield progress, and what was found: the last of that counts. WebnormError for a mistake in it."""


@dataclass(frozen=True, kw_only=True)
class KernelWorkItem(WorkItem):
    """An errand with kernels: which, `carried` and the rest say, as `asked.bench_request` takes them."""

    carried: ShippedFiles
    ops: tuple[str, ...]
    chosen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    every: bool = False
    tuning: Tuning | None = None

    def run(self, worker: Worker, traits: Traits) -> Events:
        """As any errand; results call files what they are called where they came from."""
        with self.carried.unpacked() as here:
            try:
                for event in self.results(here, worker, traits):
                    yield event if isinstance(event, Progress) else [here.as_at_home(one) for one in event]
            except WebnormError as error:
                raise WebnormError(here.named(str(error))) from error

    @abstractmethod
    def results(self, here: UnpackedFiles, worker: Worker, traits: Traits) -> Events:
        """Yield progress and results."""


@dataclass(frozen=True, kw_only=True)
class BenchItem(KernelWorkItem):
    """A problem to be timed: see BenchRequest. With `profile` the fastest has the times of the transfers."""

    task: Task
    rule: timing.StoppingRule
    runs: int = 1
    calls: Calls = "one by one"
    profile: bool = False

    def results(self, here: UnpackedFiles, worker: Worker, traits: Traits) -> Events:
        """Of the problem."""
        asked_for = requests.bench_request(
            here.names, self.ops, roots=here.roots, chosen=self.chosen, every=self.every, rule=self.rule
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
    """Some of the tasks of a check: those of `part` (see CheckRequest), which are counted as everywhere."""

    cases: str | None
    seed: int
    dtype: str | None
    changes: Overrides
    part: tuple[int, int]
    alone = False

    def results(self, here: UnpackedFiles, worker: Worker, traits: Traits) -> Events:
        """Of these cases."""
        asked_for = requests.check_request(
            here.names, self.ops, roots=here.roots, chosen=self.chosen, every=self.every
        )
        corpus = whole_corpus(self.seed)
        whole = requests.with_cases(asked_for, corpus, self.cases, here.input, self.dtype, self.changes)
        request = replace(whole, tuning=self.tuning, part=self.part)
        expected, found = max(1, request.count()), list[Result]()
        for result in check.case_results(request, worker, traits):
            found.append(result)
            task = Task(request.tasks[0][1].op, result.problem)
            yield Progress(task, f"{result.case}: {result.kernel}", share=min(1.0, len(found) / expected))
        yield found


@dataclass(frozen=True, kw_only=True)
class TuneItem(WorkItem):
    """A problem to be tuned: see TuneRequest."""

    task: Task
    budget_s: float

    def run(self, worker: Worker, traits: Traits) -> Iterator[Progress | tune.TuneResult]:
        """As any errand."""
        yield from tune.run(tune.TuneRequest((self.task,), tuple(discover()), self.budget_s), worker, traits)


@dataclass(frozen=True, kw_only=True)
class CopyItem(WorkItem):
    """What the copy moves on this card: its results, of more bytes than a cache holds. It has all constants,
    and where the card is a program the default ones, which are as fast there.
    """

    def run(self, worker: Worker, traits: Traits) -> Events:
        """As any errand."""
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
    """A problem's results, the fastest with the times of the transfers: see bench.profiled."""
    return bench.profiled(
        found, lambda task, kernel: worker.stream(time_transfers, TransferJob(task, kernel, rule))
    )
