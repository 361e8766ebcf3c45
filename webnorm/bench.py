"""The benchmark: kernels x constants x problems, each beside the copy kernel, one problem after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from webnorm import lab, timing
from webnorm.device import Traits
from webnorm.kernel import Kernel, Variant, chosen_variants
from webnorm.ops import Op, plain
from webnorm.presets import Task
from webnorm.problem import Problem
from webnorm.results import Result
from webnorm.worker import Worker, WorkerDied

# Buffers of all sets together: over four times the largest last-level cache of a GPU today (256 MB on AMD's
# MI300), so that what a dispatch reads has been evicted since the last time.
COLD_BYTES = 1 << 30
MOST_SETS = 64
# Nothing that reads x and writes y moves fewer bytes than a copy; 5 % is more than clocks and luck explain.
SUSPICIOUS_PERCENT = 105.0


@dataclass(frozen=True)
class Request:
    """What to run: each task's problem with the kernels of its op.

    `chosen` picks values of tune axes, `every` takes all admitted constants.
    """

    tasks: tuple[Task, ...]
    kernels: tuple[Kernel, ...]
    copies: tuple[Kernel, ...]
    rule: timing.Rule
    roots: tuple[Path, ...] = ()
    chosen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    every: bool = False


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


def variants(request: Request, task: Task, traits: Traits) -> list[Variant]:
    """The variants that a task is run with: the copy in all its constants, then the kernels asked for."""
    found: list[Variant] = []
    for kernel in request.copies:
        found += chosen_variants(kernel, plain(task.problem), traits, {}, every=True)
    for kernel in request.kernels:
        if kernel.op is task.op:
            found += chosen_variants(kernel, task.problem, traits, request.chosen, request.every)
    return found


def run(request: Request, worker: Worker, traits: Traits) -> Iterator[Progress | list[Result]]:
    """Yield progress, and the list of results of each problem as soon as it is whole.

    A generator that is closed early (Ctrl-C) has yielded every problem that was finished.
    """
    for task in request.tasks:
        yield from _run_task(request, task, worker, traits)


def _run_task(
    request: Request, task: Task, worker: Worker, traits: Traits
) -> Iterator[Progress | list[Result]]:
    asked = variants(request, task, traits)
    problem = task.problem
    results: dict[int, Result] = {}
    while len(results) < len(asked):
        left = [index for index in range(len(asked)) if index not in results]
        job = lab.TimingJob(
            problem,
            tuple(lab.VariantSpec.of(asked[index]) for index in left),
            request.roots,
            sets_for(task.op, problem, traits),
            request.rule,
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
                    case lab.Round(rounds):
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
