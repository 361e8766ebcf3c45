"""The benchmark: kernels x constants x problems, each beside the copy kernel, one problem after another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from webnorm.choice.defaults import ChosenVariant, choose, chosen_variants, each_chosen
from webnorm.choice.tuning import Tuning
from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.gpu.timing import DRIFTING, FEW_SAMPLES, NOISY_SPREAD, THROTTLED_RATIO
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import AUTO, UnreadableKernel, discover
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied, explain_worker_failure
from webnorm.lab.results import intervals
from webnorm.lab.results.ranking import best
from webnorm.lab.results.result import Calls, Result, Status
from webnorm.lab.run import jobs
from webnorm.lab.verify.problem_buffers import LARGEST_CACHE
from webnorm.lab.verify.timed_work import SUSPICIOUS_ONE_SIDED_PERCENT, SUSPICIOUS_PERCENT, suspicious_percent
from webnorm.lab.verify.trial import blank_result, expect_instability, unreadable, with_samples
from webnorm.op.op import Task
from webnorm.op.problem import Problem
from webnorm.op.registry import OPS, as_copy_problem

# Buffers of all sets together: four times the largest cache, so that what a dispatch reads has been evicted
# since the last time. Small problems take many sets: 64 of 128 rows of 768 float16 are 25 MB, which lie in an
# H200's L2.
COLD_BYTES = 4 * LARGEST_CACHE
MOST_SETS = 1024
# What the flags of results mean.
FLAGS = {
    "few samples": f"fewer than {FEW_SAMPLES}, which tell neither ranks nor whether the device is noisy",
    "noisy": f"p20 to p80, of samples or of runs, spans more than {100 * NOISY_SPREAD:.0f} % of the median",
    "throttled": f"the last third took over {100 * (THROTTLED_RATIO - 1):.0f} % more time than the first",
    "drifting": f"by the end the copy's own time moved by over {100 * DRIFTING:.0f} %, and over its noise",
    "unsettled": "the device had not come to rest when it was timed",
    "suspicious": (
        f"more than {SUSPICIOUS_PERCENT:.0f} % of the copy, or {SUSPICIOUS_ONE_SIDED_PERCENT:.0f} % "
        "for an op that only reads, and in proportion between"
    ),
    "interrupted": "Ctrl-C ended the timing early, or came before it was proved that the work was done",
}

# Given a task and the kernel that calls take, None where they take none: has a worker measure, and
# gives what that yields. Its last has fields of a Result.
Measure = Callable[[Task, str | None], Iterator[Any]]


@dataclass(frozen=True)
class BenchRequest:
    """What to run: each task's problem with the kernels of its op.

    `chosen` picks values of tune axes, `every` takes all admitted constants. What auto chooses from `ladder`
    and `tuning` is marked where it is run; `with_auto` runs it in any case. `runs` repeats everything in so
    many fresh processes.
    """

    tasks: tuple[Task, ...]
    kernels: tuple[Kernel, ...]
    copies: tuple[Kernel, ...]
    rule: timing.StoppingRule
    roots: tuple[Path, ...] = ()
    chosen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    every: bool = False
    ladder: tuple[Kernel, ...] = ()
    tuning: Tuning | None = None
    with_auto: bool = False
    runs: int = 1
    calls: Calls = "one by one"
    broken: tuple[UnreadableKernel, ...] = ()


@dataclass(frozen=True)
class Progress:
    """Where work on a list of tasks stands: the task, what is being done, and the share of all that is done;
    from whom no list is known, the share of the task.

    `place` says where several runs or tasks stand, such as "run 2 of 3". `so_far` gives the task's results by
    the rounds that are done by the time it is called, flagged "interrupted"; none before there is a round of
    all variants, and where an earlier run has results.
    """

    task: Task
    doing: str
    place: str = ""
    share: float = 0.0
    so_far: Callable[[], list[Result]] = field(default=list, repr=False, compare=False)

    def __str__(self) -> str:
        # What changes comes first: a narrow terminal cuts the end.
        return f"{self.doing}: {', '.join(filter(None, (self.place, str(self.task))))}"


class _Standing:
    """Where one problem stands, from what its worker reports of those that are `left`: of `kernels`, the
    variants' names, that have no `results` yet.
    """

    # How much of a problem's time each step takes, as begin and end of its share: none is known before.
    _STEPS: ClassVar = {"checking": (0.0, 0.4), "timing": (0.4, 0.85), "proving": (0.85, 1.0)}

    def __init__(
        self, task: Task, kernels: Sequence[str], results: Mapping[int, Result] = MappingProxyType({})
    ) -> None:
        self._task, self._results, self._whole = task, results, range(len(kernels))
        self.left = [index for index in self._whole if index not in results]
        self._kernels = [kernels[index] for index in self.left]
        self._step, self._begun, self._leader = "checking", 0, ""
        self._ready: dict[int, Result] = {}
        self._rounds: list[tuple[float, ...]] = []

    def so_far(self) -> list[Result]:
        """The results, by the rounds that are done where timing goes on; none before all have any."""
        samples = zip(*self._rounds, strict=True)
        timed = {
            self.left[index]: replace(with_samples(result, own), flags=(*timing.flags(own), "interrupted"))
            for (index, result), own in zip(self._ready.items(), samples, strict=False)
        }
        found = {**timed, **self._results}
        whole = timed and len(found) == len(self._whole)
        return with_share_of_copy([found[index] for index in self._whole]) if whole else []

    def heard(self, event: object) -> Iterator[Progress]:
        """What an event changes, if it does."""
        match event:
            case jobs.VariantReady(index, result):
                self._ready[index] = result
            case jobs.RoundSampled(samples):
                self._rounds.append(samples)
            case jobs.VariantBegan(index) if self._step != "timing":
                self._begun += 1
                yield self._at(self._kernels[index], self._begun / len(self._kernels))
            case timing.RoundDone(done, of):
                self._step = "timing"
                of = of or done
                yield self._at(f"round {done} of {of}{self._leader}", done / of)
            case jobs.LeadingVariant(index, percent):
                self._leader = f"; {self._kernels[index]} leads, {percent:.0f} % of copy"
            case jobs.CheckingTimedWork():
                self._step, self._begun = "proving", 0

    def _at(self, what: str, share: float) -> Progress:
        begin, end = self._STEPS[self._step]
        share = begin + (end - begin) * min(1.0, share)
        return Progress(self._task, f"{self._step} {what}", share=share, so_far=self.so_far)


def sets_for(task: Task, traits: Traits) -> int:
    """How many sets of buffers keep the cache out; one on a software adapter, which has the CPU's."""
    if traits.software:
        return 1
    size = max(1, task.op.minimum_bytes(task.problem))
    return max(1, min(MOST_SETS, math.ceil(COLD_BYTES / size)))


def copies_of(kernels: Sequence[Kernel], problem: Problem, traits: Traits) -> list[Variant]:
    """The copy in all its constants."""
    return [
        variant
        for kernel in kernels
        for variant in chosen_variants(kernel, as_copy_problem(problem), traits, {}, every=True)
    ]


def _auto_choice(request: BenchRequest, task: Task, traits: Traits) -> ChosenVariant | None:
    """What auto chooses for a task; None for a copy, and where nothing can run it but kernels are named."""
    if task.op.is_copy or not request.ladder:
        return None
    try:
        return choose(request.ladder, task, traits, request.tuning)
    except WebnormError:
        if not request.kernels:
            raise
        return None


def run(request: BenchRequest, worker: Worker, traits: Traits) -> Iterator[Progress | list[Result]]:
    """Yield progress, and a problem's results as soon as they are whole; with several runs, what all runs so
    far have found, so that the last of a problem's lists is the one that counts.

    A generator that is closed early (Ctrl-C) has yielded everything that was finished.
    """
    found: list[list[list[Result]]] = [[] for _ in request.tasks]
    for number in range(request.runs):
        place = f"run {number + 1} of {request.runs}" if request.runs > 1 else ""
        if number:
            # What moves between runs is a process's memory and moment, too.
            worker.stop()
        for at, (task, so_far) in enumerate(zip(request.tasks, found, strict=True)):
            for event in _run_task(request, task, worker, traits):
                if isinstance(event, Progress):
                    share = (number + (at + event.share) / len(request.tasks)) / request.runs
                    yield replace(event, place=place, share=share, so_far=list if so_far else event.so_far)
                else:
                    so_far.append(event)
                    yield merge_runs(so_far)


def _run_task(
    request: BenchRequest, task: Task, worker: Worker, traits: Traits
) -> Iterator[Progress | list[Result]]:
    """One task; a mistake in it is a result for each kernel, and raised where there is no other task."""
    try:
        chosen = _auto_choice(request, task, traits)
        own, broken = each_chosen(request.kernels, task, traits, request.chosen, request.every)
        asked = [*copies_of(request.copies, task.problem, traits), *own]
        if request.with_auto and chosen is not None and chosen.variant not in asked:
            asked.append(chosen.variant)
        broken += [one for one in request.broken if one.op is task.op]
        whole = partial(_whole, asked, chosen, [unreadable(one, task.problem) for one in broken])

        def so_far(timed: Callable[[], list[Result]]) -> list[Result]:
            found = timed()
            return whole(found) if found else []

        for event in measure(task, asked, request.rule, request.roots, worker, traits, request.calls):
            if isinstance(event, Progress):
                yield replace(event, so_far=partial(so_far, event.so_far))
            else:
                yield whole(event)
    except WebnormError as error:
        if len(request.tasks) == 1:
            raise
        yield unrun_results(request.kernels, task, str(error))


def unrun_results(
    kernels: Sequence[Kernel], task: Task, reason: str, case: str | None = None, lost: bool = False
) -> list[Result]:
    """A result for each kernel of a task's op, or of auto alone, that says why there is none: an error, or
    where the task was `lost` with a cluster's workers nothing that speaks against a kernel.
    """
    gone = [UnreadableKernel(one.op, one.name, one.path, reason) for one in kernels if one.op is task.op]
    gone = gone or [UnreadableKernel(task.op, AUTO, Path(), reason)]
    status: Status = "skip" if lost else "error"
    return [replace(unreadable(one, task.problem, case), status=status) for one in gone]


def _whole(
    asked: Sequence[Variant], chosen: ChosenVariant | None, broken: Sequence[Result], timed: list[Result]
) -> list[Result]:
    """A task's results: of those that are `timed` what auto chose is marked, and what is broken follows."""
    found = [*timed, *broken]
    if chosen is not None and chosen.variant in asked:
        at = asked.index(chosen.variant)
        found[at] = replace(found[at], auto=chosen.source)
    return found


def measure(
    task: Task,
    asked: Sequence[Variant],
    rule: timing.StoppingRule,
    roots: tuple[Path, ...],
    worker: Worker,
    traits: Traits,
    calls: Calls = "one by one",
    repeated: bool = False,
) -> Iterator[Progress | list[Result]]:
    """Yield progress, then a result for each variant in their order, those that took the worker down too.

    Where rows are `repeated`, a block of them is held against float64, and the others against the block.
    """
    results: dict[int, Result] = {}
    while len(results) < len(asked):
        standing = _Standing(task, [one.kernel.name for one in asked], results)
        left = standing.left
        specs = tuple(jobs.VariantSpec.of(asked[index]) for index in left)
        job = jobs.TimingJob(task, specs, roots, sets_for(task, traits), rule, calls, repeated)
        at = left[0]
        try:
            for event in worker.stream(jobs.time_variants, job):
                match event:
                    case jobs.VariantBegan(index):
                        at = left[index]
                    case jobs.VariantResult(index, result):
                        results[left[index]] = expect_instability(result, asked[left[index]].kernel)
                yield from standing.heard(event)
        except (WorkerDied, TaskFailed) as failure:
            # The others are tried again without the culprit.
            results[at] = blank_result(asked[at], task.problem, reason=str(failure))
    yield with_share_of_copy([results[index] for index in range(len(asked))])


def with_share_of_copy(results: Sequence[Result]) -> list[Result]:
    """The results with their share of the best copy, and "suspicious" where that is too good."""
    fastest = max((r.gbps for r in results if r.roofline and r.gbps), default=None)
    if fastest is None:
        return list(results)
    found = []
    for result in results:
        if result.gbps:
            # In this order the fastest has 100 exactly.
            percent = 100 * (result.gbps / fastest)
            most = 100.0 if result.roofline else suspicious_percent(OPS[result.op], result.problem)
            flags = (*result.flags, "suspicious") if percent > most else result.flags
            result = replace(result, percent_of_copy=percent, flags=flags)
        found.append(result)
    return found


def merge_runs(found: Sequence[Sequence[Result]]) -> list[Result]:
    """A problem's results of several runs as one list: the samples of all runs, and the flags that stand.

    A variant that is wrong in one run is wrong.
    """
    if len(found) == 1:
        return list(found[0])
    together = with_share_of_copy([_merged(members) for members in zip(*found, strict=True)])
    yardstick = best([one for one in together if one.roofline])
    return [_noted(one, yardstick) if one.timed else one for one in together]


def _merged(members: Sequence[Result]) -> Result:
    """One variant's results as one."""
    for number, one in enumerate(members, 1):
        if not one.timed:
            why = f"in run {number} of {len(members)}" + (f": {one.reason}" if one.reason else "")
            return replace(one, reason=why if number > 1 else one.reason)
    samples = [sample for one in members for sample in one.samples_ns or ()]
    # One run that was disturbed is no fault of the whole; what most runs have is.
    raised = Counter(flag for one in members for flag in one.flags if flag != "suspicious")
    return replace(
        with_samples(members[0], samples),
        runs=tuple(len(one.samples_ns or ()) for one in members),
        flags=tuple(flag for flag, count in raised.items() if 2 * count >= len(members)),
    )


def _noted(result: Result, yardstick: Result | None) -> Result:
    """The result, "noisy" if its runs are apart, each taken beside the copy: they make up for noisy samples.

    With too few runs for that their own flags stand.
    """
    if len(result.samples_by_run) < intervals.FEWEST_RUNS:
        return result
    beside = yardstick and yardstick is not result and yardstick.shares_rounds(result)
    levels = np.exp(result.levels(yardstick if beside else None))
    flags = [flag for flag in result.flags if flag not in ("noisy", "few samples")]
    noisy = timing.statistics(levels.tolist()).spread > NOISY_SPREAD
    return replace(result, flags=(*flags, *(["noisy"] if noisy else [])))


def flag_meanings(results: Sequence[Result]) -> list[str]:
    """What those flags mean that results have, a line each: docs/measuring.md has more."""
    raised = {flag for result in results for flag in result.flags}
    return [f"{flag}: {meaning}" for flag, meaning in FLAGS.items() if flag in raised]


def has_failures(results: Sequence[Result]) -> bool:
    """Whether a run has a result that makes it a failure: wrong or broken, and not expected to be."""
    return any(result.status in ("fail", "error") and not result.expected for result in results)


def profiled(results: Sequence[Result], measure: Measure) -> list[Result]:
    """One problem's results; the fastest that is right has the times of the transfers, too.

    Raises WebnormError when the worker dies over them.
    """
    fastest = best([result for result in results if not result.roofline])
    if fastest is None:
        return list(results)
    callable_kernels = {kernel.name for kernel in discover() if kernel.op.name == fastest.op}
    kernel = fastest.kernel if fastest.kernel in callable_kernels else None
    with explain_worker_failure(f"profiling {fastest.op} {fastest.problem}"):
        *_, transfers = measure(Task(OPS[fastest.op], fastest.problem), kernel)
    return [replace(result, **vars(transfers)) if result is fastest else result for result in results]


def device_of(worker: Worker) -> tuple[dict[str, Any], Traits]:
    """The description and the traits of the worker's device."""
    ((description, traits),) = worker.stream(jobs.describe_device, None)
    return description, traits
