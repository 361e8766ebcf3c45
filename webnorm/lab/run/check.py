"""The check: every kernel on every case of the corpus, or on the user's own array."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from webnorm.choice.defaults import choose, each_chosen
from webnorm.choice.tuning import Tuning
from webnorm.errors import WebnormError
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import UnreadableKernel
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied
from webnorm.lab.results.result import Result
from webnorm.lab.run import jobs
from webnorm.lab.verify.trial import blank_result, expect_instability, unreadable
from webnorm.lab.verify.user_array import as_rows, read_rows
from webnorm.op.corpus import ArrayCase, Case, Overrides, fixed_cases, problems
from webnorm.op.dtypes import Array
from webnorm.op.op import Op, Task
from webnorm.op.presets import smallest_problem
from webnorm.op.problem import Problem
from webnorm.op.registry import options_of

_FOR_GPUS = "too large for an adapter on the CPU: this case runs on GPUs only"
# A kernel that crashes or hangs the process in this many cases is not run any more.
_MOST_ENDED = 3


@dataclass(frozen=True)
class CheckRequest:
    """A request for a check.

    Attributes
    ----------
    changes
        Options and scalars that replace the cases' own.
    chosen, every
        Values of tune axes, or all allowed constants of every kernel.
    ladder, tuning
        The sources of auto's choice, which is checked too. An empty ladder omits it.
    whole
        True if the cases are a whole corpus and not a selection.
    broken
        Requested kernels that cannot be read.
    part
        The range of tasks that this request covers, if several requests share the work.
    """

    kernels: tuple[Kernel, ...]
    cases: tuple[Case, ...] = field(default_factory=fixed_cases)
    dtypes: tuple[str, ...] = ("float32",)
    changes: Overrides = field(default_factory=Overrides)
    roots: tuple[Path, ...] = ()
    chosen: Mapping[str, Sequence[int]] | None = None
    every: bool = False
    ladder: tuple[Kernel, ...] = ()
    tuning: Tuning | None = None
    whole: bool = False
    broken: tuple[UnreadableKernel, ...] = ()
    part: tuple[int | None, int | None] = (None, None)

    @property
    def ops(self) -> list[Op]:
        """The ops of the requested kernels."""
        return list({kernel.op.name: kernel.op for kernel in (*self.kernels, *self.ladder)}.values())

    @cached_property
    def tasks(self) -> list[tuple[Case, Task]]:
        """The cases with their problems of each op."""
        found = [
            (case, Task(op, problem))
            for op in self.ops
            for case, problem in problems(self.cases, op, self.dtypes, self.changes)
        ]
        return found[slice(*self.part)]

    def count(self) -> int:
        """Return the number of results, if every kernel has one variant."""
        return sum(
            sum(kernel.op is task.op for kernel in self.kernels) + bool(self.ladder) for _, task in self.tasks
        )

    def variants(
        self, case: Case, task: Task, traits: Traits
    ) -> tuple[list[Variant], list[UnreadableKernel]]:
        """Return the variants to check on a task of a case, and the kernels that cannot handle it."""
        extremes = case.varies_constants and not self.chosen and not self.every
        found, broken = each_chosen(self.kernels, task, traits, self.chosen or {}, self.every, extremes)
        if self.ladder:
            chosen = choose(self.ladder, task, traits, self.tuning).variant
            found += [chosen] if chosen not in found else []
        return found, broken

    def left_to_gpus(self, traits: Traits) -> list[str]:
        """Return the cases of a whole corpus that do not run on this adapter."""
        names = dict.fromkeys(case.name for case, _ in self.tasks if case.for_gpus)
        return [*names] if self.whole and traits.software else []

    def refuse_options(self) -> None:
        """Raise WebnormError for changes that the kernels' ops reject, which is why there is no task."""
        for op in self.ops:
            smallest = smallest_problem(op, options_of(op, self.changes.options or ()))
            op.problem(*smallest.sizes.values(), options=smallest.options, **cast(Any, self.changes.given))


def user_array_case(given: Path | Array, dtypes: Sequence[str] = ()) -> ArrayCase:
    """Return a case with the user's own array (..., cols), given directly or as an .npy file.

    Raises WebnormError if it is not such an array, if `dtypes` exclude its type, and if it has no rows. Empty
    `dtypes` allow all types.
    """
    if isinstance(given, Path):
        (x, dtype), name, source = read_rows(given, dtypes), given.name, str(given)
    else:
        (x, dtype), name, source = as_rows(given, "input", dtypes), "input", "an array of the caller's"
    if not len(x):
        where = given if isinstance(given, Path) else name
        raise WebnormError(f"{where} has no rows; a check needs at least 1")
    return ArrayCase(name, source, x, dtype)


def run(request: CheckRequest, worker: Worker, traits: Traits) -> Iterator[Result]:
    """Yield a result for each kernel, constants and case, followed by `corpus_results`."""
    found = []
    for result in case_results(request, worker, traits):
        found.append(result)
        yield result
    yield from corpus_results(request, found)


def case_results(request: CheckRequest, worker: Worker, traits: Traits) -> Iterator[Result]:
    """Yield a result for each kernel, constants and case."""
    ended: Counter[str] = Counter()
    for case, task in request.tasks:
        found, broken = request.variants(case, task, traits)
        if case.for_gpus and traits.software:
            # Only cases that were selected by name are reported as skipped.
            if not request.whole:
                for one in found:
                    yield replace(blank_result(one, task.problem, case.name, _FOR_GPUS), status="skip")
            continue
        for given, variants in _given(request, case, task, found, traits):
            yield from _check(request, case, given, variants, worker, ended)
        yield from (unreadable(one, task.problem, case.name) for one in broken)


def corpus_results(request: CheckRequest, found: Iterable[Result]) -> Iterator[Result]:
    """Yield a result for each unreadable kernel, and for each kernel that refuses most of a whole corpus.

    The second kind counts the cases in `found` of a storage type that the kernel supports.
    """
    # Cases are counted, since a kernel can have several results per case, one for each of its constants.
    taken: defaultdict[tuple[str, str, str], set[str | None]] = defaultdict(set)
    refused: defaultdict[tuple[str, str, str], set[str | None]] = defaultdict(set)
    # Kernels that process all rows at once may refuse cases with cut rows, which no caller can choose.
    narrow = {case.name for case in request.cases if case.narrow is not None}
    for result in found:
        if result.case not in narrow:
            kind = refused if result.status == "skip" else taken
            kind[result.op, result.kernel, result.problem.dtype].add(result.case)
    for one in request.broken:
        yield unreadable(one, smallest_problem(one.op))
    if request.whole:
        for kernel, dtype in itertools.product(request.kernels, request.dtypes):
            name = kernel.op.name, kernel.name, dtype
            # The kernel may support other types.
            some = any(taken[kernel.op.name, kernel.name, one] for one in request.dtypes)
            if len(refused[name]) > len(taken[name]) and (taken[name] or not some):
                cases = f"{len(refused[name])} of {len(taken[name] | refused[name])} cases"
                reason = f"refuses {cases}: passing the others proves little"
                # A refused problem represents the corpus.
                problem = next(task.problem for _, task in request.tasks if task.op is kernel.op)
                blank = blank_result(Variant(kernel, {}), problem, "whole corpus", reason)
                yield replace(blank, status="fail")


def _given(
    request: CheckRequest, case: Case, task: Task, variants: list[Variant], traits: Traits
) -> Iterator[tuple[Task, list[Variant]]]:
    """Yield the task with its variants; those that refuse it get another task if the op has one."""
    refusing = [one for one in variants if one.refusal(task.problem, traits) is not None]
    left, others = list(variants), list[tuple[Task, list[Variant]]]()
    for label in dict.fromkeys(one.kernel.label for one in refusing):
        mine = [one for one in refusing if one.kernel.label == label]
        other = _other_task(case, task, mine, traits)
        again = [
            one
            for one in (request.variants(case, other, traits)[0] if other != task else ())
            if one.kernel.label == label and one.refusal(other.problem, traits) is None
        ]
        if again:
            left = [one for one in left if one not in mine]
            others.append((other, again))
    yield task, left
    yield from others


def _other_task(case: Case, task: Task, refusing: Sequence[Variant], traits: Traits) -> Task:
    """Return the task that variants of one kernel get instead of one that they refuse."""

    def fits(problem: Any) -> bool:
        return any(one.refusal(problem, traits) is None for one in refusing)

    return case.other_task(task, fits, refusing[0].kernel.rule_numbers)


def _check(
    request: CheckRequest,
    case: Case,
    task: Task,
    variants: Sequence[Variant],
    worker: Worker,
    ended: Counter[str],
) -> Iterator[Result]:
    """Yield a result for each variant on a case.

    Kernels that have `ended` the process too often are skipped, since each hang takes the whole time limit.
    """
    for variant in variants:
        if ended[variant.kernel.label] >= _MOST_ENDED:
            reason = f"not run: it crashed the process or hung in {_MOST_ENDED} earlier cases"
            yield blank_result(variant, task.problem, case.name, reason)
    left = [one for one in variants if ended[one.kernel.label] < _MOST_ENDED]
    arrays = case.draw(task) if left else {}
    watch = case.watched or not request.whole
    while left:
        specs = tuple(map(jobs.VariantSpec.of, left))
        job = jobs.CheckJob(case.name, task, arrays, specs, request.roots, case.narrow, watch)
        at = done = 0
        try:
            for event in worker.stream(jobs.check_variants, job):
                match event:
                    case jobs.VariantBegan(index):
                        at = index
                    case jobs.VariantResult(index, result):
                        done = index + 1
                        yield with_expectation(result, left[index].kernel, case)
        except (WorkerDied, TaskFailed) as failure:
            yield blank_result(left[at], task.problem, case.name, str(failure))
            ended[left[at].kernel.label] += isinstance(failure, WorkerDied)
            done = at + 1
        except WebnormError as error:
            # For example, this machine may lack memory for one case; the other cases still run.
            if not request.whole:
                raise
            yield from (blank_result(one, task.problem, case.name, str(error)) for one in left[done:])
            return
        left = left[done:]


def with_expectation(result: Result, kernel: Kernel, case: Case) -> Result:
    """Return the result with the kernel's declared instability taken into account.

    An unstable kernel has to fail if the corpus says that its formula must; if it passes, the check is blind.
    It may fail where a stable kernel must not. A right result becomes a skip if its kernel may never end.
    """
    if kernel.unstable and result.status == "pass" and is_meant_to_fail(kernel, case, result.problem):
        reason = f"passed a case that its formula cannot pass: {kernel.unstable}"
        return replace(result, status="fail", reason=reason)
    if result.status == "pass" and result.reason:
        return replace(result, status="skip")
    return expect_instability(result, kernel)


def is_meant_to_fail(kernel: Kernel, case: Case, problem: Problem) -> bool:
    """Return true if a kernel's formula cannot be right on this case.

    Narrower types round x so coarsely that its variance can be large although float32's is small.
    """
    return kernel.name == case.must_fail and problem.dtype == "float32"
