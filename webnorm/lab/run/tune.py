"""The parent's side of a tuning: which variants, restarts after a death, the last measurement, the choice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webnorm.choice.defaults import choose, fitting_variant, suggestions
from webnorm.choice.tuning import LARGE_BYTES, TunedChoice
from webnorm.gpu import timing
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant, header_names, runnable_variants
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied
from webnorm.lab.results import intervals
from webnorm.lab.results.ranking import best, grouped
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench, jobs, search
from webnorm.lab.run.bench import Progress
from webnorm.op import expression
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Task
from webnorm.op.presets import check_batch, ops_with_options, tasks_of_each, usual_shapes, without_duplicates
from webnorm.op.registry import computing_ops, op_named

DTYPES_TUNED = ("float32", "float16")
# Powers of two: what lies between them has other best constants now and then, and is tuned where it matters.
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
SOFTWARE_LENGTHS = (256, 1024, 4096)
QUICK_LENGTHS = (1024,)
# A software adapter takes a millisecond for so many elements: long enough for the clock.
SOFTWARE_ELEMENTS = 1 << 19
# What a choice has to gain to take the place of the rules': less may be luck, and saves nobody time.
LEAST_GAIN = 1.01
# Of a problem's budget, for the final measurement; the rest is for the search.
MEASURING = 0.25


@dataclass(frozen=True)
class TuneRequest:
    """The tasks to tune, the kernels to choose from, and the seconds that each task may take, at most.

    Making the inputs, probing each kernel and checking what is left come on top.
    """

    tasks: tuple[Task, ...]
    kernels: tuple[Kernel, ...]
    budget_s: float
    roots: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TuneResult:
    """What came of a task: the choice to record, None where nothing was right; what was dropped, and why."""

    task: Task
    choice: TunedChoice | None
    rules: Variant
    dropped: tuple[str, ...]


def tuning_tasks(
    asked: Sequence[str] | None,
    sizes: Mapping[str, Sequence[int] | None],
    dtypes: Sequence[str],
    options: Sequence[str],
    software: bool,
    quick: bool,
) -> tuple[Task, ...]:
    """The tasks of those ops asked for, or of all that compute, that have the options: with `sizes`, and what
    is None or not there as the adapter has it; for an op of the user's as its benchmarks have it.

    A batch that is not named makes the data so large on a GPU that a choice serves all that are larger.
    Raises WebnormError for a problem that an op does not have.
    """
    usual = QUICK_LENGTHS if quick else SOFTWARE_LENGTHS if software else LENGTHS
    dtypes = dtypes or (DTYPES_TUNED[:1] if quick else DTYPES_TUNED)
    found: list[Task] = []
    for name in ops_with_options(computing_ops() if asked is None else asked, options):
        op = op_named(name)
        op.check_sizes([size for size, values in sizes.items() if values is not None])
        batches, lengths = (sizes.get(size) for size in (op.problem_type.BATCH, op.problem_type.AXIS))
        check_batch(op.problem_type.BATCH, batches)
        if op.source is not None:
            shapes = usual_shapes(op, sizes, software, quick)
            found += tasks_of_each([name], dtypes, shapes, options)
            continue
        for dtype in dtypes:
            full = LARGE_BYTES // DTYPES[dtype].itemsize
            elements = SOFTWARE_ELEMENTS if software else full
            pairs = [(m, n) for n in lengths or usual for m in batches or (max(1, elements // max(1, n)),)]
            found += tasks_of_each([name], [dtype], pairs, options)
    return without_duplicates(found)


def candidates(kernels: Sequence[Kernel], task: Task, traits: Traits, rules: Variant) -> list[Variant]:
    """Every variant that may win: first the rules' choice; then each kernel's default, which the rules' next
    follow, in the order in which they are expected to be fast; then all others.

    Left out are unstable kernels, what cannot run, and whatever rounds the mean where the rules' choice does
    not: speed is not bought with accuracy.
    """
    exact = not _rounds_mean(rules, task, traits)
    own = {kernel.name: kernel for kernel in kernels if kernel.op is task.op and kernel.unstable is None}
    defaults = (fitting_variant(kernel, task.problem, traits)[0] for kernel in own.values())
    runnable = {
        _key(variant): variant
        for kernel in own.values()
        for variant in runnable_variants(kernel, task.problem, traits)
    }
    expected = (
        runnable.get((kernel, tuple(constants.values())))
        for kernel, constants in suggestions(task.op, header_names(task.op, task.problem, traits))
        if constants is not None
    )
    found: dict[tuple[str, tuple[int, ...]], Variant] = {}
    for variant in itertools.chain([rules], defaults, expected, runnable.values()):
        if variant is not None and not (exact and _rounds_mean(variant, task, traits)):
            found.setdefault(_key(variant), variant)
    return list(found.values())


def _key(variant: Variant) -> tuple[str, tuple[int, ...]]:
    return variant.kernel.name, tuple(variant.constants[axis] for axis in variant.kernel.tune)


def _rounds_mean(variant: Variant, task: Task, traits: Traits) -> bool:
    names = variant.names(task.problem, traits)
    return bool(expression.evaluate(variant.kernel.accuracy.rounded_mean, names))


def run(request: TuneRequest, worker: Worker, traits: Traits) -> Iterator[Progress | TuneResult]:
    """Yield progress, and what came of each task as soon as it is known."""
    count = len(request.tasks)
    for at, task in enumerate(request.tasks):
        for event in _tune(request, task, worker, traits):
            if isinstance(event, Progress):
                place = f"{at + 1} of {count}" if count > 1 else ""
                event = replace(event, place=place, share=(at + event.share) / count)
            yield event


def _tune(
    request: TuneRequest, task: Task, worker: Worker, traits: Traits
) -> Iterator[Progress | TuneResult]:
    rules = choose(request.kernels, task, traits).variant
    asked = candidates(request.kernels, task, traits, rules)
    dropped: dict[int, str] = {}
    finalists = None
    while finalists is None and len(dropped) < len(asked):
        finalists = yield from _search(request, task, asked, dropped, worker, traits)
    indices, tried = (finalists.indices, finalists.tried) if finalists else ((), 0)

    copies = bench.copies_of([one for one in request.kernels if one.op.is_copy], task.problem, traits)
    last = [asked[index] for index in (0, *(index for index in indices if index))]
    rule = replace(timing.StoppingRule(), budget_s=request.budget_s * MEASURING)
    for measured in bench.measure(task, [*copies, *last], rule, request.roots, worker, traits, repeated=True):
        if isinstance(measured, Progress):
            share = 1 - MEASURING + MEASURING * measured.share
            yield replace(measured, doing=f"the best: {measured.doing}", share=share)
            continue
        results = measured[len(copies) :]
        faults = [(asked[index], reason) for index, reason in dropped.items()]
        faults += [
            (variant, result.reason or "it has no time")
            for variant, result in zip(last, results, strict=True)
            if not result.timed and all(variant is not asked[index] for index in dropped)
        ]
        yield TuneResult(task, _choice(task, results, tried), rules, tuple(_reasons(faults)))


def _search(
    request: TuneRequest,
    task: Task,
    asked: Sequence[Variant],
    dropped: dict[int, str],
    worker: Worker,
    traits: Traits,
) -> Generator[Progress, None, search.Finalists | None]:
    """The finalists among those asked for that are not dropped, and more of the dropped.

    None when one took the worker down, and with it what was known of the others.
    """
    left = [index for index in range(len(asked)) if index not in dropped]
    rule = replace(timing.StoppingRule(), budget_s=request.budget_s * (1 - MEASURING))
    specs = tuple(jobs.VariantSpec.of(asked[index]) for index in left)
    job = jobs.TimingJob(task, specs, request.roots, bench.sets_for(task, traits), rule, repeated=True)
    at: int | None = None
    finalists = None
    yield Progress(task, "making the inputs")
    try:
        for event in worker.stream(search.search_variants, job):
            match event:
                case jobs.VariantBegan(index):
                    at = left[index]
                case search.SearchProgress(what, share):
                    yield Progress(task, what, share=(1 - MEASURING) * share)
                case search.VariantDropped(index, reason):
                    dropped[left[index]] = reason
                case search.Finalists(indices, tried):
                    finalists = search.Finalists(tuple(left[index] for index in indices), tried)
    except (WorkerDied, TaskFailed) as failure:
        # Before the first variant it is the inputs' or the answers' failure, and would be again. Of another
        # kernel than the rules' nothing more is tried: each death costs all that was found.
        culprit = None if at is None else asked[at].kernel
        for index in left:
            given_up = asked[index].kernel is culprit and culprit is not asked[0].kernel
            if culprit is None or index == at or given_up:
                dropped[index] = str(failure)
        return None
    return finalists


def _reasons(faults: Sequence[tuple[Variant, str]]) -> Iterator[str]:
    """Why variants were dropped, a line for each kernel and reason."""
    for (label, reason), members in grouped(faults, lambda one: (one[0].kernel.label, one[1])).items():
        yield f"{members[0][0] if len(members) == 1 else f'{len(members)} variants of {label}'}: {reason}"


def _choice(task: Task, results: Sequence[Result], tried: int) -> TunedChoice | None:
    """The fastest result; the first, of the rules' choice, unless another is clearly faster."""
    rules = results[0]
    winner = best(results)
    if winner is None:
        return None
    if rules.timed and not _clearly_faster(rules, winner):
        winner = rules
    speedup = None
    if rules.timed and rules.median_ns and winner.median_ns:
        speedup = rules.median_ns / winner.median_ns
    return TunedChoice(
        op=task.op.name,
        problem=task.problem,
        kernel=winner.kernel,
        constants=winner.constants,
        speedup=speedup,
        percent_of_copy=winner.percent_of_copy,
        tried=tried,
    )


def _clearly_faster(old: Result, new: Result) -> bool:
    """Whether the new median is faster by LEAST_GAIN and, round by round, its 95 % interval excludes that it
    is not.
    """
    gained = new.shares_rounds(old) and (old.median_ns or 0.0) / (new.median_ns or math.inf) >= LEAST_GAIN
    return gained and intervals.ratio_interval(new.samples_by_run, old.samples_by_run)[1] < 1
