"""What the worker process does with a variant: prepare it, hold it against float64, time it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import wgpu

from webnorm import timing
from webnorm.accuracy import Accuracy, assess, tolerance
from webnorm.device import Device
from webnorm.diagnostics import read_report
from webnorm.errors import WebnormError
from webnorm.kernel import Variant, load
from webnorm.ops import OPS
from webnorm.plan import Inputs, Outputs, Plan, check_memory, compile_shader
from webnorm.problem import Array, Problem, make_inputs
from webnorm.reference import Float64Array
from webnorm.render import render_shader
from webnorm.results import Result


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
class Began:
    """The worker has turned to a variant: whatever goes wrong next is its doing."""

    index: int


@dataclass(frozen=True)
class Found:
    """A variant's result is known."""

    index: int
    result: Result


@dataclass(frozen=True)
class Round:
    """So many rounds of timing are done."""

    done: int


def blank_result(variant: Variant, problem: Problem, case: str | None = None) -> Result:
    """A result of which only the names are known yet."""
    return Result(
        op=variant.kernel.op.name,
        kernel=variant.kernel.name,
        constants=dict(variant.constants),
        problem=problem,
        status="error",
        case=case,
    )


def with_accuracy(result: Result, accuracy: Accuracy) -> Result:
    """The result with its errors and verdict."""
    return replace(
        result,
        status="pass" if accuracy.ok else "fail",
        reason=accuracy.reason,
        max_abs_error=accuracy.max_abs_error,
        max_rel_error=accuracy.max_rel_error,
        tolerance=accuracy.tolerance,
        worst=str(accuracy.worst) if accuracy.worst else None,
        non_finite=accuracy.non_finite,
    )


class Bench:
    """One problem's buffers on the device, and the reference answers, shared by every variant tried on it."""

    def __init__(
        self,
        device: Device,
        problem: Problem,
        arrays: Mapping[str, Array],
        roots: Sequence[Path],
        sets: int = 1,
    ) -> None:
        self.device, self.problem, self.arrays, self.roots = device, problem, arrays, roots
        self.sets = sets
        self._expected: dict[str, Float64Array] = {}
        self._inputs: Inputs | None = None
        self._outputs: Outputs | None = None

    def expected(self, variant: Variant) -> Float64Array:
        """The op's float64 answer, worked out once."""
        op = variant.kernel.op
        if op.name not in self._expected:
            self._expected[op.name] = op.reference(self.arrays, self.problem.eps)
        return self._expected[op.name]

    def prepare(self, variant: Variant) -> Plan:
        """Render, compile and bind; raises WebnormError for what cannot run here."""
        refusal = variant.refusal(self.problem, self.device.traits)
        if refusal:
            raise WebnormError(refusal)
        shader = render_shader(variant, self.problem, "native", self.device.traits, roots=self.roots)
        if self._inputs is None or self._outputs is None:
            self._inputs = Inputs(self.device, self.problem, self.arrays, self.sets)
            self._outputs = Outputs(self.device, self.problem, ["y"], self.sets)
        return Plan(self.device, shader, self._inputs, self._outputs, compile_shader(self.device, shader))

    def first_outcome(self, plan: Plan) -> tuple[Accuracy, bytes]:
        """Errors of the first set, and a digest of its bits."""
        got, guard_intact = plan.outputs.read("y")
        expected = self.expected(plan.shader.variant)
        allowed = tolerance(plan.shader)
        accuracy = assess(got, expected, self.arrays, self.problem.eps, allowed, guard_intact)
        return accuracy, _digest(got)

    def holds(self, plan: Plan, digest: bytes) -> bool:
        """Whether every set's bits have this digest, with all guards intact."""
        outcomes = (plan.outputs.read("y", index) for index in range(self.sets))
        return all(intact and _digest(got) == digest for got, intact in outcomes)


def _digest(array: Array) -> bytes:
    return hashlib.blake2b(array.data).digest()


def try_variant(bench: Bench, variant: Variant, case: str | None = None) -> tuple[Result, Plan | None, bytes]:
    """Compute the problem with a variant and hold it against float64.

    Gives the result, and for a variant that is right its plan and the digest of its output.
    """
    result = blank_result(variant, bench.problem, case)
    try:
        plan = bench.prepare(variant)
        plan.outputs.poison()
        plan.run()
        accuracy, digest = bench.first_outcome(plan)
    except WebnormError as error:
        refused = variant.refusal(bench.problem, bench.device.traits) is not None
        return replace(result, status="skip" if refused else "error", reason=str(error)), None, b""
    except wgpu.GPUError as error:
        return replace(result, reason=f"wgpu refused to run it: {read_report(str(error))[1]}"), None, b""
    return with_accuracy(result, accuracy), plan if accuracy.ok else None, digest


def repeated(bench: Bench, result: Result, plan: Plan, digest: bytes) -> Result:
    """The result of a variant whose outputs were just written again: every set must hold the same bits."""
    if bench.holds(plan, digest):
        return replace(result, deterministic=True)
    accuracy, _ = bench.first_outcome(plan)
    result = replace(with_accuracy(result, accuracy), status="fail", deterministic=False)
    return replace(result, reason=result.reason or "the same input twice gave different bits")


# --- tasks: what the parent process asks for -------------------------------------------------------


@dataclass(frozen=True)
class TimingJob:
    """Variants to try and time side by side on one problem. `sets` > 1 keeps a cache from helping."""

    problem: Problem
    variants: tuple[VariantSpec, ...]
    roots: tuple[Path, ...]
    sets: int
    rule: timing.Rule


def time_variants(device: Device, job: TimingJob) -> Iterator[Any]:
    """Try each variant, then time those that are right in turn; the last round is checked again."""
    check_memory(job.problem, OPS[job.variants[0].op], device, job.sets)
    bench = Bench(device, job.problem, make_inputs(job.problem), job.roots, job.sets)
    stopwatch = timing.Stopwatch(device)
    running: list[tuple[int, Result, Plan, bytes, int]] = []
    for index, spec in enumerate(job.variants):
        yield Began(index)
        result, plan, digest = try_variant(bench, spec.variant())
        if plan is None:
            yield Found(index, result)
        else:
            running.append((index, result, plan, digest, stopwatch.dispatches(plan)))
    if not running:
        return

    samples: list[list[float]] = [[] for _ in running]
    began = timing.clock()
    done = 0
    while not timing.enough(samples, job.rule, began):
        for own, (index, _, plan, _, dispatches) in zip(samples, running, strict=True):
            yield Began(index)
            own.append(stopwatch.time(plan, dispatches))
        done += 1
        yield Round(done)

    for own, (index, result, plan, digest, dispatches) in zip(samples, running, strict=True):
        yield Began(index)
        # The check is of the buffers that were timed: this sample counts like the others.
        plan.outputs.poison()
        own.append(stopwatch.time(plan, dispatches))
        result = repeated(bench, result, plan, digest)
        if result.status == "pass":
            result = _measured(bench, stopwatch, result, plan, dispatches, own)
        yield Found(index, result)


def _measured(
    bench: Bench,
    stopwatch: timing.Stopwatch,
    result: Result,
    plan: Plan,
    dispatches: int,
    samples: Sequence[float],
) -> Result:
    """The result with its times."""
    statistics = timing.statistics(samples)
    size = plan.shader.variant.kernel.op.minimum_bytes(bench.problem)
    return replace(
        result,
        median_ns=statistics.median,
        p20_ns=statistics.p20,
        p80_ns=statistics.p80,
        samples_ns=tuple(samples),
        dispatches_per_sample=dispatches,
        timing_method=stopwatch.method,
        cache="cold" if bench.sets > 1 or not bench.device.traits.software else "warm",
        bytes=size,
        gbps=size / statistics.median if statistics.median > 0 else None,
        flags=timing.flags(samples),
    )


@dataclass(frozen=True)
class CheckJob:
    """One problem with given arrays, and the variants to hold against float64 on it."""

    case: str
    problem: Problem
    arrays: Mapping[str, Array]
    variants: tuple[VariantSpec, ...]
    roots: tuple[Path, ...]


def check_variants(device: Device, job: CheckJob) -> Iterator[Any]:
    """Try each variant and say how it went."""
    check_memory(job.problem, OPS[job.variants[0].op], device)
    bench = Bench(device, job.problem, job.arrays, job.roots)
    for index, spec in enumerate(job.variants):
        yield Began(index)
        result, plan, digest = try_variant(bench, spec.variant(), job.case)
        if plan is not None:
            plan.outputs.poison()
            plan.run()
            result = repeated(bench, result, plan, digest)
        yield Found(index, result)


def describe(device: Device, job: None) -> Iterator[Any]:
    """The device's description and traits."""
    yield device.description(), device.traits
