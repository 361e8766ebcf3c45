"""The benchmark: kernels x constants x problems, each next to the copy kernel, one problem after another."""

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

# The total size of all sets of buffers: four times the largest cache, so that data are evicted before a
# dispatch reads them again. Small problems need many sets: 64 sets of 128 rows of 768 float16 are 25 MB, and
# still fit into an H200's L2.
COLD_BYTES = 4 * LARGEST_CACHE
MOST_SETS = 1024
# The meanings of the flags of results.
FLAGS = {
    "few samples": f"fewer than {FEW_SAMPLES} samples, too few for ranks and for a check of the noise",
    "noisy": f"p20 to p80 of samples or runs spans more than {100 * NOISY_SPREAD:.0f} % of the median",
    "throttled": f"the last third took over {100 * (THROTTLED_RATIO - 1):.0f} % more time than the first",
    "drifting": f"the copy's own time changed by over {100 * DRIFTING:.0f} % and by more than its noise",
    "unsettled": "the device's speed had not settled when timing began",
    "suspicious": (
        f"faster than {SUSPICIOUS_PERCENT:.0f} % of the copy, or {SUSPICIOUS_ONE_SIDED_PERCENT:.0f} % "
        "for an op that only reads; the limit is in proportion for ops between"
    ),
    "interrupted": "Ctrl-C ended the timing early, or came before the proof that the work was done",
}

# Takes a task and the kernel that calls use, or None; has a worker measure and yields its events. The last
# event has fields of a Result.
Measure = Callable[[Task, str | None], Iterator[Any]]


@dataclass(frozen=True)
class BenchRequest:
    """A request for a benchmark: each task's problem with the kernels of its op.

    Attributes
    ----------
    chosen, every
        Values of tune axes, or all allowed constants.
    ladder, tuning
        The sources of auto's choice, which is marked in the results.
    with_auto
        Run auto's choice even if it is not among the requested variants.
    runs
        The number of runs, each in a new process.
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
    """The progress of work on a list of tasks.

    Attributes
    ----------
    task, doing
        The task and the current step.
    place
        The position among several runs or tasks, such as "run 2 of 3".
    share
        The finished share of all tasks, or of this task if the list is unknown.
    so_far
        Returns the task's results from the rounds that are finished when it is called, flagged
        "interrupted". There are none before the first round of all variants, and none if an earlier run
        has results.
    """

    task: Task
    doing: str
    place: str = ""
    share: float = 0.0
    so_far: Callable[[], list[Result]] = field(default=list, repr=False, compare=False)

    def __str__(self) -> str:
        # The changing part comes first, because a narrow terminal cuts the end.
        return f"{self.doing}: {', '.join(filter(None, (self.place, str(self.task))))}"


class _ProblemProgress:
    """The progress of one problem, from the worker's events.

    `kernels` are the names of the variants; `left` are the indices of those without `results`.
    """

    # The begin and end of each step as a share of a problem's time, which are guesses.
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
        """Return the results from the finished rounds; none until all variants have one."""
        samples = zip(*self._rounds, strict=True)
        timed = {
            self.left[index]: replace(with_samples(result, own), flags=(*timing.flags(own), "interrupted"))
            for (index, result), own in zip(self._ready.items(), samples, strict=False)
        }
        found = {**timed, **self._results}
        whole = timed and len(found) == len(self._whole)
        return with_share_of_copy([found[index] for index in self._whole]) if whole else []

    def after(self, event: object) -> Iterator[Progress]:
        """Update the state for an event, and yield the progress if it changed."""
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
    """Return the number of sets of buffers that exceed the cache; 1 on a software adapter."""
    if traits.software:
        return 1
    size = max(1, task.op.minimum_bytes(task.problem))
    return max(1, min(MOST_SETS, math.ceil(COLD_BYTES / size)))


def copies_of(kernels: Sequence[Kernel], problem: Problem, traits: Traits) -> list[Variant]:
    """Return the copy kernels with all their constants."""
    return [
        variant
        for kernel in kernels
        for variant in chosen_variants(kernel, as_copy_problem(problem), traits, {}, every=True)
    ]


def _auto_choice(request: BenchRequest, task: Task, traits: Traits) -> ChosenVariant | None:
    """Return auto's choice for a task; None for a copy, and if no kernel can run it but kernels are named."""
    if task.op.is_copy or not request.ladder:
        return None
    try:
        return choose(request.ladder, task, traits, request.tuning)
    except WebnormError:
        if not request.kernels:
            raise
        return None


def run(request: BenchRequest, worker: Worker, traits: Traits) -> Iterator[Progress | list[Result]]:
    """Yield progress, and a problem's results as soon as they are complete.

    With several runs each list contains the results of all runs so far, so that a problem's last list counts.
    If the generator is closed early (Ctrl-C), it has yielded everything that was finished.
    """
    found: list[list[list[Result]]] = [[] for _ in request.tasks]
    for number in range(request.runs):
        place = f"run {number + 1} of {request.runs}" if request.runs > 1 else ""
        if number:
            # A new process is part of the variation between runs, for example through its memory layout.
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
    """Run one task. A mistake in it is raised if it is the only task, and otherwise a result per kernel."""
    try:
        chosen = _auto_choice(request, task, traits)
        own, broken = each_chosen(request.kernels, task, traits, request.chosen, request.every)
        asked = [*copies_of(request.copies, task.problem, traits), *own]
        if request.with_auto and chosen is not None and chosen.variant not in asked:
            asked.append(chosen.variant)
        broken += [one for one in request.broken if one.op is task.op]
        whole = partial(_all_results, asked, chosen, [unreadable(one, task.problem) for one in broken])

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
    """Return a result with the reason for each kernel of a task's op, or for auto if there is none.

    The status is "error". If the task was `lost` with a cluster's workers it is "skip", because that says
    nothing about a kernel.
    """
    gone = [UnreadableKernel(one.op, one.name, one.path, reason) for one in kernels if one.op is task.op]
    gone = gone or [UnreadableKernel(task.op, AUTO, Path(), reason)]
    status: Status = "skip" if lost else "error"
    return [replace(unreadable(one, task.problem, case), status=status) for one in gone]


def _all_results(
    asked: Sequence[Variant], chosen: ChosenVariant | None, broken: Sequence[Result], timed: list[Result]
) -> list[Result]:
    """Return a task's results: the `timed` ones with auto's choice marked, then the broken kernels."""
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
    """Yield progress, then a result for each variant in order, including those that crashed the worker.

    If rows are `repeated`, a block of rows is compared with float64, and the other rows with the block.
    """
    results: dict[int, Result] = {}
    while len(results) < len(asked):
        progress = _ProblemProgress(task, [one.kernel.name for one in asked], results)
        left = progress.left
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
                yield from progress.after(event)
        except (WorkerDied, TaskFailed) as failure:
            # The other variants run again without this one.
            results[at] = blank_result(asked[at], task.problem, reason=str(failure))
    yield with_share_of_copy([results[index] for index in range(len(asked))])


def with_share_of_copy(results: Sequence[Result]) -> list[Result]:
    """Return the results with their percentage of the best copy; too fast ones are flagged "suspicious"."""
    fastest = max((r.gbps for r in results if r.roofline and r.gbps), default=None)
    if fastest is None:
        return list(results)
    found = []
    for result in results:
        if result.gbps:
            # This order of operations gives the fastest copy exactly 100.
            percent = 100 * (result.gbps / fastest)
            most = 100.0 if result.roofline else suspicious_percent(OPS[result.op], result.problem)
            flags = (*result.flags, "suspicious") if percent > most else result.flags
            result = replace(result, percent_of_copy=percent, flags=flags)
        found.append(result)
    return found


def merge_runs(found: Sequence[Sequence[Result]]) -> list[Result]:
    """Merge a problem's results of several runs: the samples of all runs, and the flags of most runs.

    A variant that is wrong in one run is wrong.
    """
    if len(found) == 1:
        return list(found[0])
    together = with_share_of_copy([_merged(members) for members in zip(*found, strict=True)])
    yardstick = best([one for one in together if one.roofline])
    return [_with_noise_flag(one, yardstick) if one.timed else one for one in together]


def _merged(members: Sequence[Result]) -> Result:
    """Merge one variant's results of several runs."""
    for number, one in enumerate(members, 1):
        if not one.timed:
            reason = f"in run {number} of {len(members)}" + (f": {one.reason}" if one.reason else "")
            return replace(one, reason=reason if number > 1 else one.reason)
    samples = [sample for one in members for sample in one.samples_ns or ()]
    # A flag counts if at least half of the runs have it: single runs may be disturbed.
    raised = Counter(flag for one in members for flag in one.flags if flag != "suspicious")
    return replace(
        with_samples(members[0], samples),
        runs=tuple(len(one.samples_ns or ()) for one in members),
        flags=tuple(flag for flag, count in raised.items() if 2 * count >= len(members)),
    )


def _with_noise_flag(result: Result, yardstick: Result | None) -> Result:
    """Return the result, flagged "noisy" if its runs differ too much relative to the copy.

    This replaces the runs' own flags about noise, unless there are too few runs.
    """
    if len(result.samples_by_run) < intervals.FEWEST_RUNS:
        return result
    shared = yardstick and yardstick is not result and yardstick.shares_rounds(result)
    levels = np.exp(result.levels(yardstick if shared else None))
    flags = [flag for flag in result.flags if flag not in ("noisy", "few samples")]
    noisy = timing.statistics(levels.tolist()).spread > NOISY_SPREAD
    return replace(result, flags=(*flags, *(["noisy"] if noisy else [])))


def flag_meanings(results: Sequence[Result]) -> list[str]:
    """Return a line about the meaning of each flag in the results; docs/measuring.md explains more."""
    raised = {flag for result in results for flag in result.flags}
    return [f"{flag}: {meaning}" for flag, meaning in FLAGS.items() if flag in raised]


def has_failures(results: Sequence[Result]) -> bool:
    """Return true if a result is wrong or broken, and not expected to be."""
    return any(result.status in ("fail", "error") and not result.expected for result in results)


def profiled(results: Sequence[Result], measure: Measure) -> list[Result]:
    """Return one problem's results, with the times of transfers for the fastest right one.

    Raises WebnormError if the worker dies while it measures them.
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
    """Return the description and the traits of the worker's device."""
    ((description, traits),) = worker.stream(jobs.describe_device, None)
    return description, traits
