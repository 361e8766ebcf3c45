"""The benchmark: kernels x constants x problems, each beside the copy kernel, one problem after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from webnorm import auto, lab, timing
from webnorm.device import Traits
from webnorm.errors import WebnormError
from webnorm.kernel import Kernel, Variant, chosen_variants
from webnorm.ops import Op, plain
from webnorm.presets import Task
from webnorm.problem import Problem
from webnorm.results import Result
from webnorm.tuning import Tuning
from webnorm.worker import Worker, WorkerDied

# Buffers of all sets together: four times the largest cache, so that what a dispatch reads has been evicted
# since the last time. Small problems take many sets: 64 of 128 rows of 768 float16 lie in an H200's L2, and a
# copy of one took 2.2 us where it takes 3.6.
COLD_BYTES = 4 * lab.LARGEST_CACHE
MOST_SETS = 1024
# Nothing that reads x and writes y moves fewer bytes than a copy; 5 % is more than clocks and luck explain.
SUSPICIOUS_PERCENT = 105.0


@dataclass(frozen=True)
class Request:
    """What to run: each task's problem with the kernels of its op.

    `chosen` picks values of tune axes, `every` takes all admitted constants. What auto chooses from `ladder`
    and `tunings` is marked where it is run; `with_auto` runs it in any case.
    """

    tasks: tuple[Task, ...]
    kernels: tuple[Kernel, ...]
    copies: tuple[Kernel, ...]
    rule: timing.Rule
    roots: tuple[Path, ...] = ()
    chosen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    every: bool = False
    ladder: tuple[Kernel, ...] = ()
    tunings: tuple[Tuning, ...] = ()
    with_auto: bool = False


@dataclass(frozen=True)
class Progress:
    """Where a run stands: the task, and what is being done to which variant or how many rounds are done."""

    task: Task
    doing: str


def sets_for(op: Op, problem: Problem, traits: Traits) -> int:
    """How many sets of buffers keep the cache out; one on a software adapter, which has the CPU's."""
    if traits.software:
        return 1
    size = max(1, op.minimum_bytes(problem))
    return max(1, min(MOST_SETS, math.ceil(COLD_BYTES / size)))


def copies_of(kernels: Sequence[Kernel], problem: Problem, traits: Traits) -> list[Variant]:
    """The copy in all its constants."""
    return [
        variant
        for kernel in kernels
        for variant in chosen_variants(kernel, plain(problem), traits, {}, every=True)
    ]


def variants(request: Request, task: Task, traits: Traits, chosen: auto.Chosen | None) -> list[Variant]:
    """The variants that a task is run with: the copies, the kernels asked for, and what auto chose."""
    found = copies_of(request.copies, task.problem, traits)
    for kernel in request.kernels:
        if kernel.op is task.op:
            found += chosen_variants(kernel, task.problem, traits, request.chosen, request.every)
    if request.with_auto and chosen is not None and chosen.variant not in found:
        found.append(chosen.variant)
    return found


def auto_choice(request: Request, task: Task, traits: Traits) -> auto.Chosen | None:
    """What auto chooses for a task; None for a copy, and where nothing can run it but kernels are named."""
    if task.op.exact or not request.ladder:
        return None
    try:
        return auto.choose(request.ladder, task.op, task.problem, traits, request.tunings)
    except WebnormError:
        if not request.kernels:
            raise
        return None


def run(request: Request, worker: Worker, traits: Traits) -> Iterator[Progress | list[Result]]:
    """Yield progress, and the list of results of each problem as soon as it is whole.

    A generator that is closed early (Ctrl-C) has yielded every problem that was finished.
    """
    for task in request.tasks:
        yield from _run_task(request, task, worker, traits)


def _run_task(
    request: Request, task: Task, worker: Worker, traits: Traits
) -> Iterator[Progress | list[Result]]:
    chosen = auto_choice(request, task, traits)
    asked = variants(request, task, traits, chosen)
    for event in measure(task, asked, request.rule, request.roots, worker, traits):
        if isinstance(event, list) and chosen is not None and chosen.variant in asked:
            at = asked.index(chosen.variant)
            event[at] = replace(event[at], auto=chosen.source)
        yield event


def measure(
    task: Task,
    asked: Sequence[Variant],
    rule: timing.Rule,
    roots: tuple[Path, ...],
    worker: Worker,
    traits: Traits,
) -> Iterator[Progress | list[Result]]:
    """Yield progress, then a result for each variant in their order, those that took the worker down too."""
    problem = task.problem
    results: dict[int, Result] = {}
    while len(results) < len(asked):
        left = [index for index in range(len(asked)) if index not in results]
        job = lab.TimingJob(
            problem,
            tuple(lab.VariantSpec.of(asked[index]) for index in left),
            roots,
            sets_for(task.op, problem, traits),
            rule,
        )
        at = left[0]
        rounds = 0
        try:
            for event in worker.stream(lab.time_variants, job):
                match event:
                    case lab.Began(index):
                        at = left[index]
                        if not rounds:
                            yield Progress(task, f"checking {asked[at]}")
                    case timing.Round(rounds):
                        yield Progress(task, f"timing, round {rounds}")
                    case lab.Found(index, result):
                        results[left[index]] = result
        except WorkerDied as death:
            # The others are tried again without the culprit.
            results[at] = replace(lab.blank_result(asked[at], problem), reason=str(death))
    yield against_copy([results[index] for index in range(len(asked))], traits)


def against_copy(results: Sequence[Result], traits: Traits) -> list[Result]:
    """The results with their share of the best copy, and "suspicious" where that is too good."""
    best = max((r.gbps for r in results if r.op == "copy" and r.gbps), default=None)
    if best is None:
        return list(results)
    found = []
    for result in results:
        if result.gbps:
            percent = 100 * result.gbps / best
            suspicious = percent > SUSPICIOUS_PERCENT and not traits.software
            flags = (*result.flags, "suspicious") if suspicious else result.flags
            result = replace(result, percent_of_copy=percent, flags=flags)
        found.append(result)
    return found


def failed(results: Sequence[Result]) -> bool:
    """Whether a run has a result that makes it a failure: wrong or broken, and not expected to be."""
    return any(result.status in ("fail", "error") and not result.expected for result in results)


def device_of(worker: Worker) -> tuple[dict[str, Any], Traits]:
    """The description and the traits of the worker's device."""
    ((description, traits),) = worker.stream(lab.describe, None)
    return description, traits
