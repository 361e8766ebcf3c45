"""An attempt at a kernel, timed in turn with the copy, the attempt before it and the best there is.

For somebody who waits: what is known of the others is kept from one attempt to the next, and times are told
before they are proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from webnorm.choice.defaults import choose, chosen_variants
from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.gpu.device import Device
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.library import discover, select
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.results.ranking import best
from webnorm.lab.results.result import Result
from webnorm.lab.run import jobs
from webnorm.lab.run.bench import copies_of, sets_for, with_share_of_copy
from webnorm.lab.verify.problem_buffers import Golden, ProblemBuffers
from webnorm.lab.verify.timed_work import TimedVariant, TimingSetup, timing_setup
from webnorm.lab.verify.trial import blank_result, expect_instability, try_plan, try_variant
from webnorm.op.op import Task

Name = Literal["attempt", "previous", "best", "goal", "copy"]
# What is timed, by what its text is known.
Asked = tuple[Name, str, Variant]
# What differs by less than a few per cent is for `webnorm bench` to tell apart.
RULE = timing.StoppingRule(least=5, most=15, spread=0.03, budget_s=1.0, settle_s=0.2)
# Rounds after which a time is told that is not proved yet.
_TOLD_AFTER = 3


@dataclass(frozen=True)
class KernelRevision:
    """A kernel's file and what tells its text, snippets included, from others."""

    path: Path
    hash: str


@dataclass(frozen=True)
class LiveTimingJob:
    """A kernel to be timed on a task, with values of its tune axes that somebody chose; `previous` is an
    earlier text of it, `goal` a kernel of the op's that is timed, too. `roots` have snippets of both texts.
    """

    task: Task
    attempt: KernelRevision
    constants: Mapping[str, Sequence[int]]
    roots: tuple[Path, ...]
    previous: KernelRevision | None = None
    goal: str | None = None
    rule: timing.StoppingRule = RULE


@dataclass(frozen=True)
class LiveResult:
    """A result, and what it is to the attempt; `proved` once it is known that the work was done."""

    name: Name
    result: Result
    proved: bool


@dataclass
class _Stand:
    """What lasts from one attempt to the next: a task's buffers and clock, and variants that are right."""

    setup: TimingSetup
    right: dict[str, tuple[Result, Plan, Golden]] = field(default_factory=dict)
    proved: set[str] = field(default_factory=set)
    # The fastest, once it is known.
    copy: Variant | None = None

    @property
    def board(self) -> ProblemBuffers:
        return self.setup.board

    def tried(
        self, key: str, variant: Variant, own: Plan | None = None
    ) -> tuple[Result, Plan | None, Golden]:
        """As try_variant, once for each key; of a plan where it was made already."""
        if key in self.right:
            return self.right[key]
        result, plan, golden = try_variant(self.board, variant) if own is None else try_plan(self.board, own)
        if plan is not None:
            self.right[key] = result, plan, golden
        return result, plan, golden


def time_live(device: Device, job: LiveTimingJob) -> Iterator[LiveResult | timing.RoundDone]:
    """The worker's task: rounds as they are done, and each result, before and after it is proved.

    Raises WebnormError for a kernel that cannot be read, and for a task that there is no room for.
    """
    stand = _stand(device, job)
    asked = list(_asked(stand, device, job))
    running = []
    # The attempt is right on other problems, or it would not be timed: whether it is on this one takes longer
    # than its first time.
    own = stand.board.prepare(asked[0][2])
    unproved = replace(blank_result(asked[0][2], job.task.problem), status="pass")
    for index, (_, key, variant) in enumerate(asked):
        result, plan, golden = stand.tried(key, variant) if index else (unproved, own, ())
        if plan is not None:
            running.append(jobs.timed_variant(stand.setup, index, result, plan, golden))
    for event in jobs.fill_samples(stand.setup, running, job.rule):
        if isinstance(event, timing.RoundDone):
            yield event
            if event.done == _TOLD_AFTER:
                so_far = {one.index: jobs.with_times(stand.setup, one.result, one) for one in running}
                yield from _told(asked, so_far, proved=False)
    result, plan, golden = stand.tried(asked[0][1], asked[0][2], own)
    if plan is None:
        yield LiveResult("attempt", expect_instability(result, asked[0][2].kernel), True)
        return
    running[0].result, running[0].golden = result, golden
    yield from _proved(stand, asked, running)


def _proved(stand: _Stand, asked: Sequence[Asked], running: Sequence[TimedVariant]) -> Iterator[LiveResult]:
    """The results once it is known that the work was done."""
    found: dict[int, Result] = {}
    known = {one.index for one in running if asked[one.index][1] in stand.proved}
    for verdict in jobs.check_all_timed_work(stand.setup, running, known):
        if isinstance(verdict, jobs.VariantResult):
            _, key, variant = asked[verdict.index]
            found[verdict.index] = expect_instability(verdict.result, variant.kernel)
            if verdict.result.status == "pass":
                stand.proved.add(key)
    _remember(stand, asked, found)
    yield from _told(asked, found, proved=True)


def _asked(stand: _Stand, device: Device, job: LiveTimingJob) -> Iterator[Asked]:
    """What is timed, and by what its text is known. An earlier one that cannot run any more is left out."""
    task, traits = job.task, device.traits

    def chosen(name: Name, text: KernelRevision) -> Asked:
        kernel = load(text.path, task.op.name)
        if kernel.op != task.op:
            raise WebnormError(f"{kernel.label} is no kernel of {task.op.name}")
        variant = chosen_variants(kernel, task.problem, traits, job.constants)[0]
        return name, f"{text.hash} {variant}", variant

    yield chosen("attempt", job.attempt)
    if job.previous is not None:
        with suppress(WebnormError):
            yield chosen("previous", job.previous)
    kernels = discover()
    if not task.op.is_copy:
        variant = choose(kernels, task, traits).variant
        yield "best", str(variant), variant
    if job.goal is not None:
        # The text may be of another op by now.
        with suppress(WebnormError):
            kernel = select(kernels, job.goal, task.op.name)
            variant = chosen_variants(kernel, task.problem, traits, {})[0]
            yield "goal", str(variant), variant
    copies = copies_of([one for one in kernels if one.op.is_copy], task.problem, traits)
    for variant in copies if stand.copy is None else [stand.copy]:
        yield "copy", str(variant), variant


def _remember(stand: _Stand, asked: Sequence[Asked], found: Mapping[int, Result]) -> None:
    """Keep what the next attempt is timed beside: the fastest copy, and what was timed now."""
    copies = {index: found[index] for index in found if asked[index][0] == "copy"}
    fastest = best(list(copies.values()))
    stand.copy = next((asked[index][2] for index, one in copies.items() if one is fastest), stand.copy)
    keys = {key for name, key, variant in asked if name != "copy" or variant == stand.copy}
    stand.right = {key: one for key, one in stand.right.items() if key in keys}
    stand.proved &= keys


def _told(asked: Sequence[Asked], found: Mapping[int, Result], proved: bool) -> Iterator[LiveResult]:
    """The results with their share of the copy, of which the fastest alone is told."""
    results = dict(zip(found, with_share_of_copy(list(found.values())), strict=True))
    fastest = best([one for one in results.values() if one.roofline])
    for index, result in results.items():
        if asked[index][0] != "copy" or result is fastest:
            yield LiveResult(asked[index][0], result, proved)


# The last one of the process: to draw inputs and to work out answers takes longer than the timing.
_stands: dict[str, _Stand] = {}


def _stand(device: Device, job: LiveTimingJob) -> _Stand:
    key = repr((job.task.op.name, job.task.problem, job.roots))
    if key not in _stands:
        _stands.clear()
        board = jobs.buffers_for_task(device, job.task, job.roots, sets_for(job.task, device.traits))
        _stands[key] = _Stand(timing_setup(board, job.rule.settle_s))
    return _stands[key]
