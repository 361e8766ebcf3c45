"""Tuning in the parent process: candidates, restarts after a crash, the final measurement, the choice."""

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
# Powers of two. Lengths between them can have other best constants; users tune those that matter.
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
SOFTWARE_LENGTHS = (256, 1024, 4096)
QUICK_LENGTHS = (1024,)
# A software adapter needs a millisecond for this many elements, long enough for the clock.
SOFTWARE_ELEMENTS = 1 << 19
# The smallest speedup over the rules' choice that counts: less may be chance, and saves little time.
LEAST_GAIN = 1.01
# The share of a problem's budget for the final measurement; the search gets the rest.
MEASURING = 0.25


@dataclass(frozen=True)
class TuneRequest:
    """The tasks to tune, the kernels to choose from, and the most seconds per task.

    The budget excludes making inputs, probing each kernel and checking the finalists.
    """

    tasks: tuple[Task, ...]
    kernels: tuple[Kernel, ...]
    budget_s: float
    roots: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TuneResult:
    """The result of tuning a task: the choice to record, or None if no variant was right.

    `rules` is the rules' choice, and `dropped` lists variants that were dropped, with the reasons.
    """

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
    """Return the tasks to tune for the requested ops, or for all computing ops with the options.

    Missing or None `sizes` get defaults that suit the adapter; a user op gets its benchmarks' sizes. The
    default batch on a GPU is so large that the choice also serves larger ones. Raises WebnormError for a
    problem that an op does not support.
    """
    default_lengths = QUICK_LENGTHS if quick else SOFTWARE_LENGTHS if software else LENGTHS
    dtypes = dtypes or (DTYPES_TUNED[:1] if quick else DTYPES_TUNED)
    found: list[Task] = []
    # Ops of define_op have no usual lengths, so they are tuned only if they are named.
    usual = [name for name in computing_ops() if op_named(name).source is None]
    for name in ops_with_options(usual if asked is None else asked, options):
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
            pairs = [
                (m, n)
                for n in lengths or default_lengths
                for m in batches or (max(1, elements // max(1, n)),)
            ]
            found += tasks_of_each([name], [dtype], pairs, options)
    return without_duplicates(found)


def candidates(kernels: Sequence[Kernel], task: Task, traits: Traits, rules: Variant) -> list[Variant]:
    """Return every variant that may win, in the order in which they are tried.

    The rules' choice comes first, then each kernel's default, then the rules' next suggestions by expected
    speed, then all others. Unstable kernels and variants that cannot run are left out. Variants that round
    the mean are left out unless the rules' choice does too, so that tuning does not lose accuracy.
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
    """Yield progress, and the result of each task as soon as it is known."""
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
            yield replace(measured, doing=f"finalists: {measured.doing}", share=share)
            continue
        results = measured[len(copies) :]
        faults = [(asked[index], reason) for index, reason in dropped.items()]
        faults += [
            (variant, result.reason or "it was not timed")
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
    """Search for the finalists among the variants that are not dropped; add further ones to `dropped`.

    Returns None if a variant crashed the worker, which loses the results of the others.
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
        # A crash before the first variant comes from inputs or answers and would happen again. All variants
        # of the crashed kernel are dropped, except of the rules' kernel: each crash loses all results.
        culprit = None if at is None else asked[at].kernel
        for index in left:
            given_up = asked[index].kernel is culprit and culprit is not asked[0].kernel
            if culprit is None or index == at or given_up:
                dropped[index] = str(failure)
        return None
    return finalists


def _reasons(faults: Sequence[tuple[Variant, str]]) -> Iterator[str]:
    """Yield one line per kernel and reason why variants were dropped."""
    for (label, reason), members in grouped(faults, lambda one: (one[0].kernel.label, one[1])).items():
        yield f"{members[0][0] if len(members) == 1 else f'{len(members)} variants of {label}'}: {reason}"


def _choice(task: Task, results: Sequence[Result], tried: int) -> TunedChoice | None:
    """Return the fastest result, or the rules' choice (the first one) unless another is clearly faster."""
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
    """Return true if the new median is faster by LEAST_GAIN and its 95 % interval confirms a speedup."""
    gained = new.shares_rounds(old) and (old.median_ns or 0.0) / (new.median_ns or math.inf) >= LEAST_GAIN
    return gained and intervals.ratio_interval(new.samples_by_run, old.samples_by_run)[1] < 1
