"""What the worker process is asked for: to hold variants against float64, to time, to count their cost."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from webnorm import signals
from webnorm.gpu import timing
from webnorm.gpu.buffers import Inputs, Outputs, check_memory, check_reference
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.library import UnreadableKernel
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.results.result import Calls, Result
from webnorm.lab.verify.problem_buffers import Golden, ProblemBuffers, RepeatedRows, block_of
from webnorm.lab.verify.timed_work import (
    TimedVariant,
    TimingSetup,
    check_ragged_samples,
    check_timed_work,
    clobber_overhead,
    impossible_times,
    sampler,
    timing_setup,
)
from webnorm.lab.verify.trial import exception_text, try_variant, unreadable, with_samples
from webnorm.op.corpus import ForceSplit
from webnorm.op.dtypes import Array
from webnorm.op.op import Task, make_inputs
from webnorm.op.problem import Problem
from webnorm.op.registry import OPS, as_copy_problem

# Who leads is worked out no more often than somebody can read it.
_BETWEEN_LOOKS_S = 0.25


@dataclass(frozen=True)
class VariantSpec:
    """A variant as it travels to the worker: the kernel is read again there."""

    path: Path
    op: str
    constants: Mapping[str, int]

    @classmethod
    def of(cls, variant: Variant) -> VariantSpec:
        """The spec of a variant."""
        return cls(variant.kernel.path, variant.kernel.op.name, dict(variant.constants))

    def variant(self) -> Variant:
        """The variant that this spec describes; raises WebnormError when its file has become unreadable."""
        return Variant(load(self.path, self.op), self.constants)


@dataclass(frozen=True)
class VariantBegan:
    """The worker has turned to a variant: whatever goes wrong next is its doing."""

    index: int


@dataclass(frozen=True)
class VariantResult:
    """A variant's result is known."""

    index: int
    result: Result


@dataclass(frozen=True)
class VariantReady:
    """A variant is right and about to be timed; the result is what is known but its times."""

    index: int
    result: Result


@dataclass(frozen=True)
class RoundSampled:
    """A round is done: a sample of each variant that is ready, in their order."""

    samples: tuple[float, ...]


@dataclass(frozen=True)
class CheckingTimedWork:
    """Timing is over; what follows is whether the work was done."""


@dataclass(frozen=True)
class LeadingVariant:
    """The variant that is the fastest so far, and its percent of the best copy."""

    index: int
    percent: float


@dataclass(frozen=True)
class TimingJob:
    """Variants to try and time side by side on one problem, the copies as well as those of the task's op.
    `sets` > 1 keeps a cache from helping. Where rows are `repeated`, inputs and checks take little of the
    time; else each row is another.
    """

    task: Task
    variants: tuple[VariantSpec, ...]
    roots: tuple[Path, ...]
    sets: int
    rule: timing.StoppingRule
    calls: Calls = "one by one"
    repeated: bool = False


def time_variants(device: Device, job: TimingJob) -> Iterator[Any]:
    """Try each variant, then time those that are right in turn; the last round is checked again."""
    board = buffers_for_job(device, job)
    right: list[tuple[int, Result, Plan, Golden]] = []
    for index, spec in enumerate(job.variants):
        yield VariantBegan(index)
        result, plan, golden = try_named(board, spec, watch=True)
        if plan is None:
            yield VariantResult(index, result)
        else:
            right.append((index, result, plan, golden))
    if right:
        setup = timing_setup(board, job.rule.settle_s)
        running = []
        for index, result, plan, golden in right:
            yield VariantBegan(index)
            running.append(timed_variant(setup, index, result, plan, golden))
            yield VariantReady(index, _untimed(setup, result, running[-1]))
        looked = timing.clock()
        for event in fill_samples(setup, running, job.rule):
            yield event
            if isinstance(event, timing.RoundDone):
                yield RoundSampled(tuple(one.samples[event.done - 1] for one in running))
                if timing.clock() - looked > _BETWEEN_LOOKS_S:
                    looked = timing.clock()
                    yield from _leader(job.task, running)
        yield CheckingTimedWork()
        yield from check_all_timed_work(setup, running)


def _leader(task: Task, running: Sequence[TimedVariant]) -> Iterator[LeadingVariant]:
    """Who is the fastest, where there are copies to hold it against."""
    medians = {one.index: timing.statistics(one.samples).median for one in running}
    copies = [one for one in running if one.result.roofline]
    others = [one for one in running if not one.result.roofline]
    if not (copies and others):
        return
    copy, first = (min(some, key=lambda one: medians[one.index]) for some in (copies, others))
    share = task.op.minimum_bytes(task.problem) / OPS["copy"].minimum_bytes(as_copy_problem(task.problem))
    yield LeadingVariant(first.index, 100 * share * medians[copy.index] / medians[first.index])


def buffers_for_job(device: Device, job: TimingJob) -> ProblemBuffers:
    """The board of a job; WebnormError where there is no room for it."""
    # What a tolerance is derived from takes minutes for a large problem.
    derived = job.task.op.source is not None and bool(job.task.problem.BATCH)
    if not job.repeated and not derived:
        return buffers_for_task(device, job.task, job.roots, job.sets, job.calls)
    check_memory(job.task, device, job.sets)
    check_reference(block_of(job.task, device))
    return RepeatedRows(device, job.task, job.sets, job.roots, job.calls)


def buffers_for_task(
    device: Device, task: Task, roots: Sequence[Path], sets: int, calls: Calls = "one by one"
) -> ProblemBuffers:
    """A task's board with inputs drawn as its problem says; WebnormError where there is no room for it."""
    check_memory(task, device, sets)
    check_reference(task.problem)
    return ProblemBuffers(device, task, make_inputs(task.op, task.problem), roots, sets, calls)


def timed_variant(
    setup: TimingSetup, index: int, result: Result, plan: Plan, golden: Golden | None
) -> TimedVariant:
    """A variant that is right, about to be timed."""
    setup.pace.ready()
    running = TimedVariant(index, result, plan, golden, *sampler(setup, plan), [])
    setup.pace.worked()
    return running


def fill_samples(
    setup: TimingSetup,
    running: Sequence[TimedVariant],
    rule: timing.StoppingRule,
    between: timing.Between | None = None,
) -> Iterator[VariantBegan | timing.RoundDone]:
    """Fill the samples of all in turn."""
    samplers, samples = [one.sampler for one in running], [one.samples for one in running]
    for event in timing.take_turns(samplers, samples, rule, setup.pace, between):
        yield VariantBegan(running[event.index].index) if isinstance(event, timing.SampleRequest) else event


def check_all_timed_work(
    setup: TimingSetup, running: Sequence[TimedVariant], proved_before: Collection[int] = ()
) -> Iterator[VariantBegan | VariantResult]:
    """Hold those that have their samples against what shows that they did the work, copies first. Of those
    that went through all of it before nothing but the outputs is looked at.
    """
    others = [one for one in running if not one.result.roofline]
    copies = [one for one in running if one.result.roofline]
    copies.sort(key=lambda one: timing.statistics(one.samples).median)
    # What the copies went through, everything did.
    drifted = bool(copies) and timing.drifting(copies[0].samples)
    usual_ns = clobber_overhead(setup)
    too_fast = impossible_times(setup, running)
    measured_against = False
    for one in copies + others:
        yield VariantBegan(one.index)
        if one.index in proved_before or (one.result.roofline and measured_against):
            # It would be no yardstick if it remembered something: nobody is measured against a slower copy.
            result = check_ragged_samples(setup, one)
        else:
            result = check_timed_work(setup, one, usual_ns)
            measured_against = result.status == "pass"
        if one.index in too_fast and result.status == "pass":
            result = replace(result, status="fail", reason=too_fast[one.index])
        if result.status == "pass":
            raised = (("unsettled", not setup.pace.settled), ("drifting", drifted))
            remarks = tuple(flag for flag, holds in raised if holds)
            result = with_times(setup, result, one, remarks)
        yield VariantResult(one.index, result)


def try_named(
    board: ProblemBuffers, spec: VariantSpec, case: str | None = None, watch: bool = False
) -> tuple[Result, Plan | None, Golden]:
    """As `try_variant`, of a variant whose kernel could be read before, and perhaps no longer can."""
    try:
        variant = spec.variant()
    except Exception as error:
        signals.let_through(error)
        gone = UnreadableKernel(OPS[spec.op], spec.path.stem, spec.path, exception_text(error))
        return unreadable(gone, board.problem), None, ()
    return try_variant(board, variant, case, watch)


def with_times(
    setup: TimingSetup, result: Result, one: TimedVariant, remarks: tuple[str, ...] = ()
) -> Result:
    """The result with its times so far; `remarks` are flags of the whole run."""
    found = with_samples(_untimed(setup, result, one), one.samples)
    return replace(found, flags=(*timing.flags(one.samples), *remarks))


def _untimed(setup: TimingSetup, result: Result, one: TimedVariant) -> Result:
    """The result with how it is timed, and what a dispatch has to move."""
    board, variant = setup.board, one.plan.shader.variant
    op, problem = variant.kernel.op, board.problem_of(variant)
    return replace(
        result,
        bytes=op.minimum_bytes(problem),
        flops=None if op.counted_flops is None else op.counted_flops(problem),
        dispatches_per_sample=one.dispatches,
        timing_method=setup.stopwatch.method,
        cache="cold" if board.cold else "warm",
        calls=board.calls,
    )


@dataclass(frozen=True)
class CheckJob:
    """One problem with given arrays, and the variants to hold against float64 on it. `narrow` says how rows
    are to be cut, `watch` whether to look for races.
    """

    case: str
    task: Task
    arrays: Mapping[str, Array]
    variants: tuple[VariantSpec, ...]
    roots: tuple[Path, ...]
    narrow: ForceSplit | None = None
    watch: bool = False


def check_variants(device: Device, job: CheckJob) -> Iterator[Any]:
    """Try each variant and say how it went."""
    check_memory(job.task, device)
    board = ProblemBuffers(device, job.task, job.arrays, job.roots, narrow=job.narrow)
    for index, spec in enumerate(job.variants):
        yield VariantBegan(index)
        yield VariantResult(index, try_named(board, spec, job.case, job.watch)[0])


def describe_device(device: Device, job: None) -> Iterator[Any]:
    """The device's description and traits."""
    yield device.description(), device.traits


# --- the cost of a shader in accesses, barriers and subgroup operations, counted by running it

# The order of `counters` in wgsl/lib/cost.wgsl.
_COUNTERS = ("row_reads", "parameter_reads", "writes", "barriers", "subgroup_operations")
_BATCH = 64
# A line with a barrier or a subgroup operation.
_COUNTED = re.compile(r"^( *)(?=[^/\n]*\b(workgroupBarrier|subgroup[A-Z]\w*)\()", re.MULTILINE)
_DECLARED = "@group(0) @binding({}) var<storage, read_write> cost: array<atomic<u32>>;"


@dataclass(frozen=True)
class ShaderCost:
    """What a shader does, None where its template does it without the library's helpers.

    Reads and writes of tensors are per element of x: `row_reads` of those with rows, `parameter_reads` of the
    others; scratch buffers are left out. Barriers are those that a workgroup passes, and subgroup operations
    those that a subgroup executes, both per row; barriers of several passes are not added up.
    """

    row_reads: float | None
    parameter_reads: float | None
    writes: float | None
    barriers: float | None
    subgroup_operations: float | None
    workgroup_bytes: int


def count_cost(device: Device, variant: Variant, problem: Problem, roots: Sequence[Path] = ()) -> ShaderCost:
    """Run an instrumented rendering on a few rows and read its counters.

    Raises WebnormError when the variant cannot run on the device.
    """
    op = variant.kernel.op
    problem = op.copied_problem(problem).with_batch(_BATCH)
    shader = render_shader(variant, problem, "native", device.traits, roots=roots, count_cost=True)
    declared = _DECLARED.format(len(shader.bindings) + 1)
    counting = f"{_COUNTED.sub(_with_counter, shader.text)}\n{declared}\n"
    inputs = Inputs(device, make_inputs(op, problem))
    outputs = Outputs(device, problem, op.outputs(problem))
    counters = device.create_buffer(4 * len(_COUNTERS))
    pipelines = compile_shader(device, replace(shader, text=counting), extra_bindings=1)
    plan = Plan(device, shader, inputs.buffers, outputs.buffers, pipelines, extra=[counters])
    plan.run()
    words = np.frombuffer(device.handle.queue.read_buffer(counters), np.uint32)
    counted = dict(zip(_COUNTERS, words.tolist(), strict=True))

    def accesses(kind: str, batched: bool, counter: str) -> float | None:
        """Such accesses per element; None where the kernel's own text has some."""
        # A text that uses neither the library nor its `tally` may call tensors by other names.
        if "&cost[" not in shader.text:
            return None
        names = [b.name for b in shader.bindings if b.tensors and (b.access, b.batched) == (kind, batched)]
        pattern = rf"\b(?:{'|'.join(names)})\[" if names else r"(?!)"
        return _counted(shader, pattern, counted[counter] / problem.batch_size / problem.inner)

    size = shader.passes[0].workgroup_size
    lanes = min(device.subgroup_size or 1, size)
    return ShaderCost(
        row_reads=accesses("read", True, "row_reads"),
        parameter_reads=accesses("read", False, "parameter_reads"),
        writes=accesses("read_write", True, "writes"),
        barriers=counted["barriers"] / size / problem.batch_size if len(shader.passes) == 1 else None,
        subgroup_operations=counted["subgroup_operations"] / lanes / problem.batch_size,
        workgroup_bytes=shader.workgroup_bytes,
    )


def _with_counter(found: re.Match[str]) -> str:
    """Each invocation counts before it comes to the line's operation."""
    counter = _COUNTERS.index("barriers" if found[2] == "workgroupBarrier" else "subgroup_operations")
    return f"{found[1]}atomicAdd(&cost[{counter}u], 1u); "


@dataclass(frozen=True)
class CostJob:
    """Variants to count, each on a problem's columns and options, in a worker process."""

    variants: tuple[tuple[Problem, VariantSpec], ...]
    roots: tuple[Path, ...]


def count_costs(device: Device, job: CostJob) -> Iterator[ShaderCost]:
    """The worker's task: the cost of each variant."""
    for problem, spec in job.variants:
        yield count_cost(device, spec.variant(), problem, job.roots)


def _counted(shader: Shader, access: str, value: float) -> float | None:
    """The value, unless the kernel's own text has such an access and does not tally what it does."""
    kernel = shader.variant.kernel
    own = (
        line
        for line, (file, _) in zip(shader.text.splitlines(), shader.origins, strict=True)
        if Path(file).parent.name != "lib"
    )
    raw = any(re.search(access, line.split("//")[0]) for line in own)
    return None if raw and "tally(" not in kernel.path.read_text(encoding="utf-8") else value
