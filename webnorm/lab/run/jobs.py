"""Jobs of the worker process: check variants against float64, time them, and count their cost."""

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

# The leader is reported no more often than a user can read it.
_BETWEEN_LOOKS_S = 0.25


@dataclass(frozen=True)
class VariantSpec:
    """A variant in the form that is sent to the worker, which reads the kernel's file again."""

    path: Path
    op: str
    constants: Mapping[str, int]

    @classmethod
    def of(cls, variant: Variant) -> VariantSpec:
        """Return the spec of a variant."""
        return cls(variant.kernel.path, variant.kernel.op.name, dict(variant.constants))

    def variant(self) -> Variant:
        """Return the variant of this spec; raise WebnormError if its file has become unreadable."""
        return Variant(load(self.path, self.op), self.constants)


@dataclass(frozen=True)
class VariantBegan:
    """The event of the start of work on a variant; a crash after it is the variant's fault."""

    index: int


@dataclass(frozen=True)
class VariantResult:
    """The event of a variant's final result."""

    index: int
    result: Result


@dataclass(frozen=True)
class VariantReady:
    """The event of a right variant that will be timed; the result has no times yet."""

    index: int
    result: Result


@dataclass(frozen=True)
class RoundSampled:
    """The event of a finished round: one sample of each ready variant, in order."""

    samples: tuple[float, ...]


@dataclass(frozen=True)
class CheckingTimedWork:
    """The event of the end of timing; the check of the timed work follows."""


@dataclass(frozen=True)
class LeadingVariant:
    """The fastest variant so far, and its percentage of the best copy."""

    index: int
    percent: float


@dataclass(frozen=True)
class TimingJob:
    """Variants to check and time in turn on one problem, including the copies.

    More than one of `sets` keeps data out of the cache. With `repeated` rows inputs and checks are fast;
    otherwise all rows differ.
    """

    task: Task
    variants: tuple[VariantSpec, ...]
    roots: tuple[Path, ...]
    sets: int
    rule: timing.StoppingRule
    calls: Calls = "one by one"
    repeated: bool = False


def time_variants(device: Device, job: TimingJob) -> Iterator[Any]:
    """Check each variant, then time the right ones in turn; the last round is checked again."""
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
    """Yield the fastest variant, if there are copies to compare it with."""
    medians = {one.index: timing.statistics(one.samples).median for one in running}
    copies = [one for one in running if one.result.roofline]
    others = [one for one in running if not one.result.roofline]
    if not (copies and others):
        return
    copy, first = (min(some, key=lambda one: medians[one.index]) for some in (copies, others))
    share = task.op.minimum_bytes(task.problem) / OPS["copy"].minimum_bytes(as_copy_problem(task.problem))
    yield LeadingVariant(first.index, 100 * share * medians[copy.index] / medians[first.index])


def buffers_for_job(device: Device, job: TimingJob) -> ProblemBuffers:
    """Return the buffers of a job; raise WebnormError if memory is too small."""
    # Deriving a tolerance takes minutes for a large problem.
    derived = job.task.op.source is not None and bool(job.task.problem.BATCH)
    if not job.repeated and not derived:
        return buffers_for_task(device, job.task, job.roots, job.sets, job.calls)
    check_memory(job.task, device, job.sets)
    check_reference(block_of(job.task, device))
    return RepeatedRows(device, job.task, job.sets, job.roots, job.calls)


def buffers_for_task(
    device: Device, task: Task, roots: Sequence[Path], sets: int, calls: Calls = "one by one"
) -> ProblemBuffers:
    """Return a task's buffers with random inputs; raise WebnormError if memory is too small."""
    check_memory(task, device, sets)
    check_reference(task.problem)
    return ProblemBuffers(device, task, make_inputs(task.op, task.problem), roots, sets, calls)


def timed_variant(
    setup: TimingSetup, index: int, result: Result, plan: Plan, golden: Golden | None
) -> TimedVariant:
    """Return a right variant, prepared for timing."""
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
    """Sample all variants in turn, and append to their samples."""
    samplers, samples = [one.sampler for one in running], [one.samples for one in running]
    for event in timing.take_turns(samplers, samples, rule, setup.pace, between):
        yield VariantBegan(running[event.index].index) if isinstance(event, timing.SampleRequest) else event


def check_all_timed_work(
    setup: TimingSetup, running: Sequence[TimedVariant], proved_before: Collection[int] = ()
) -> Iterator[VariantBegan | VariantResult]:
    """Check that timed variants did the work that was timed, copies first.

    Variants in `proved_before` only get a check of their outputs.
    """
    others = [one for one in running if not one.result.roofline]
    copies = [one for one in running if one.result.roofline]
    copies.sort(key=lambda one: timing.statistics(one.samples).median)
    # A drift of the copies affects all variants.
    drifted = bool(copies) and timing.drifting(copies[0].samples)
    usual_ns = clobber_overhead(setup)
    too_fast = impossible_times(setup, running)
    measured_against = False
    for one in copies + others:
        yield VariantBegan(one.index)
        if one.index in proved_before or (one.result.roofline and measured_against):
            # Only the yardstick needs the full check: nothing is compared with a slower copy.
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
    """Return the same as `try_variant` for a spec whose kernel file may have become unreadable."""
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
    """Return the result with its times so far; `remarks` are flags of the whole run."""
    found = with_samples(_untimed(setup, result, one), one.samples)
    return replace(found, flags=(*timing.flags(one.samples), *remarks))


def _untimed(setup: TimingSetup, result: Result, one: TimedVariant) -> Result:
    """Return the result with its timing method, and the bytes and operations of a dispatch."""
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
    """One problem with its arrays, and the variants to compare with float64.

    `narrow` forces a split, and `watch` enables the search for races.
    """

    case: str
    task: Task
    arrays: Mapping[str, Array]
    variants: tuple[VariantSpec, ...]
    roots: tuple[Path, ...]
    narrow: ForceSplit | None = None
    watch: bool = False


def check_variants(device: Device, job: CheckJob) -> Iterator[Any]:
    """Check each variant and yield its result."""
    check_memory(job.task, device)
    board = ProblemBuffers(device, job.task, job.arrays, job.roots, narrow=job.narrow)
    for index, spec in enumerate(job.variants):
        yield VariantBegan(index)
        yield VariantResult(index, try_named(board, spec, job.case, job.watch)[0])


def describe_device(device: Device, job: None) -> Iterator[Any]:
    """Yield the device's description and traits."""
    yield device.description(), device.traits


# --- The cost of a shader in accesses, barriers and subgroup operations, counted in a run.

# The order of `counters` in wgsl/lib/cost.wgsl.
_COUNTERS = ("row_reads", "parameter_reads", "writes", "barriers", "subgroup_operations")
_BATCH = 64
# A line with a barrier or a subgroup operation.
_COUNTED = re.compile(r"^( *)(?=[^/\n]*\b(workgroupBarrier|subgroup[A-Z]\w*)\()", re.MULTILINE)
_DECLARED = "@group(0) @binding({}) var<storage, read_write> cost: array<atomic<u32>>;"


@dataclass(frozen=True)
class ShaderCost:
    """The operations of a shader; None for those that its template does without the library's helpers.

    Reads and writes of tensors are per element of x, without scratch buffers. `row_reads` are reads of
    tensors with rows, and `parameter_reads` of the others. `barriers` of a workgroup and
    `subgroup_operations` of a subgroup are per row. Barriers of several passes are not added up.
    """

    row_reads: float | None
    parameter_reads: float | None
    writes: float | None
    barriers: float | None
    subgroup_operations: float | None
    workgroup_bytes: int


def count_cost(device: Device, variant: Variant, problem: Problem, roots: Sequence[Path] = ()) -> ShaderCost:
    """Run an instrumented rendering on a few rows and read its counters.

    Raises WebnormError if the variant cannot run on the device.
    """
    op = variant.kernel.op
    problem = op.copied_problem(problem).with_batch(_BATCH)
    shader = render_shader(variant, problem, device.target, device.traits, roots=roots, count_cost=True)
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
        """Return accesses per element; None if the kernel's own text contains such accesses."""
        # A text that uses neither the library nor its `tally` can rename tensors.
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
    """Return the line with a counter before its operation."""
    counter = _COUNTERS.index("barriers" if found[2] == "workgroupBarrier" else "subgroup_operations")
    return f"{found[1]}atomicAdd(&cost[{counter}u], 1u); "


@dataclass(frozen=True)
class CostJob:
    """Variants whose cost a worker process counts, each with a problem."""

    variants: tuple[tuple[Problem, VariantSpec], ...]
    roots: tuple[Path, ...]


def count_costs(device: Device, job: CostJob) -> Iterator[ShaderCost]:
    """Yield the cost of each variant, as a task of the worker."""
    for problem, spec in job.variants:
        yield count_cost(device, spec.variant(), problem, job.roots)


def _counted(shader: Shader, access: str, value: float) -> float | None:
    """Return the value, or None if the kernel's own text contains such an access and does not tally it."""
    kernel = shader.variant.kernel
    own = (
        line
        for line, (file, _) in zip(shader.text.splitlines(), shader.origins, strict=True)
        if Path(file).parent.name != "lib"
    )
    raw = any(re.search(access, line.split("//")[0]) for line in own)
    return None if raw and "tally(" not in kernel.path.read_text(encoding="utf-8") else value
