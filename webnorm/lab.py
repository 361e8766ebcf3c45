"""What the worker process does with a variant: prepare it, hold it against float64, time it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import wgpu

from webnorm import timing
from webnorm.accuracy import Accuracy, assess
from webnorm.device import Device
from webnorm.diagnostics import read_report
from webnorm.errors import WebnormError
from webnorm.kernel import Variant, default_variant, load, wgsl_root
from webnorm.ops import OPS, make_inputs, plain
from webnorm.parts import in_parts
from webnorm.plan import Inputs, Outputs, Plan, check_memory, create_module, create_pipelines
from webnorm.problem import Array, Problem
from webnorm.reference import Answers
from webnorm.render import Shader, render_shader
from webnorm.results import Calls, Result
from webnorm.sameness import Sameness
from webnorm.stopwatch import Stopwatch

# A processor raises its clock within milliseconds.
SOFTWARE_SETTLES_S = 0.1
# The largest last-level cache of a GPU today: AMD's MI300 has 256 MB.
LARGEST_CACHE = 256 << 20


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


def with_samples(result: Result, samples: Sequence[float], size: int | None) -> Result:
    """The result with samples in nanoseconds, and what follows from them and the bytes it has to move."""
    found = timing.statistics(samples)
    return replace(
        result,
        median_ns=found.median,
        p20_ns=found.p20,
        p80_ns=found.p80,
        samples_ns=tuple(samples),
        bytes=size,
        gbps=size / found.median if size and found.median > 0 else None,
    )


class Bench:
    """One problem's buffers on the device, and the reference answers, shared by every variant tried on it.

    Dispatches on different sets of buffers have nothing to wait for: several run at a time where the device
    has room. With `calls` "one by one" all of them may write to a buffer that they share, so that each waits
    for the one before, as the calls of one caller do.
    `spent` has the nanoseconds of the last `prepare`, as a Result names them.
    """

    def __init__(
        self,
        device: Device,
        problem: Problem,
        arrays: Mapping[str, Array],
        roots: Sequence[Path],
        sets: int = 1,
        calls: Calls = "one by one",
    ) -> None:
        self.device, self.problem, self.arrays, self.roots = device, problem, arrays, roots
        self.sets, self.calls = sets, calls
        # One set is written again by every dispatch, which is reason enough to wait.
        self._shared = [device.create_buffer(16)] if sets > 1 and calls == "one by one" else []
        self.spent: dict[str, Any] = {}
        self._answers: dict[tuple[str, bytes], Answers] = {}
        self._inputs: Inputs | None = None
        self._outputs: dict[str, Outputs] = {}

    @property
    def cold(self) -> bool:
        """Whether a copy of all sets in turn moves more than any cache of the device holds."""
        size = OPS["copy"].minimum_bytes(plain(self.problem))
        return not self.device.traits.software and size * self.sets >= LARGEST_CACHE

    def answers(self, variant: Variant, outputs: Mapping[str, tuple[Array, bool]]) -> Answers:
        """The op's float64 answers, worked out once; for each h that was written, where there is one."""
        op = variant.kernel.op
        h = {"h": outputs["h"][0]} if "h" in outputs else {}
        key = op.name, _digest(h)
        if key not in self._answers:
            self._answers[key] = op.reference({**self.arrays, **h}, self.problem_of(variant))
        return self._answers[key]

    def problem_of(self, variant: Variant) -> Problem:
        """The problem as the variant's op sees it: a copy has no options."""
        return plain(self.problem) if variant.kernel.op.exact else self.problem

    def prepare(self, variant: Variant) -> Plan:
        """Render, compile and bind; raises WebnormError for what cannot run here."""
        problem = self.problem_of(variant)
        refusal = variant.refusal(problem, self.device.traits)
        if refusal:
            raise WebnormError(refusal)
        with self._spending("render_ns"):
            shader = render_shader(variant, problem, "native", self.device.traits, roots=self.roots)
        return self.bind(shader)

    def bind(self, shader: Shader) -> Plan:
        """Compile a shader of this problem and bind it to the buffers."""
        with self._spending("compile_ns"):
            module = create_module(self.device, shader)
        shared = self._shared
        bound = max(len(step.bindings) for step in shader.steps) + len(shared)
        if shared and bound > self.device.limits["max-storage-buffers-per-shader-stage"]:
            raise WebnormError(
                f"{shader.variant} binds as many storage buffers as this device has, and timing calls "
                "one by one takes one more: expected fewer options, or --at-once"
            )
        with self._spending("pipeline_ns"):
            pipelines = create_pipelines(self.device, shader, module, len(shared))
        if self._inputs is None:
            self._inputs = Inputs(self.device, self.arrays, self.sets)
        outputs = self.outputs(shader.variant)
        return Plan(self.device, shader, self._inputs.buffers, outputs.buffers, pipelines, shared)

    @contextmanager
    def _spending(self, name: str) -> Iterator[None]:
        began = time.perf_counter_ns()
        yield
        self.spent[name] = float(time.perf_counter_ns() - began)

    def outputs(self, variant: Variant) -> Outputs:
        """The buffers that all variants of an op write."""
        op = variant.kernel.op
        if op.name not in self._outputs:
            shared = {
                name: buffers for other in self._outputs.values() for name, buffers in other.buffers.items()
            }
            problem = self.problem_of(variant)
            self._outputs[op.name] = Outputs(self.device, problem, op.outputs(problem), self.sets, shared)
        return self._outputs[op.name]

    def first_outcome(self, plan: Plan) -> tuple[Accuracy, bytes]:
        """Errors of the first set, and a digest of its bits."""
        variant = plan.shader.variant
        got = self.outputs(variant).read_all()
        return assess(got, self.answers(variant, got), plan.shader), digest(got)

    def holds(self, plan: Plan, expected: bytes) -> bool:
        """Whether every set's bits have this digest, with all guards intact."""
        outputs = self.outputs(plan.shader.variant)
        got = outputs.read_all()
        if not all(intact for _, intact in got.values()) or digest(got) != expected:
            return False
        return self.sets == 1 or self._sameness.of(outputs.sized())

    @cached_property
    def _sameness(self) -> Sameness:
        return Sameness(self.device)


def digest(outputs: Mapping[str, tuple[Array, bool]]) -> bytes:
    """A digest of the bits of outputs."""
    return _digest({name: array for name, (array, _) in outputs.items()})


def _digest(arrays: Mapping[str, Array]) -> bytes:
    digest = hashlib.blake2b()
    for array in arrays.values():
        for part in _part_digests(np.ascontiguousarray(array).reshape(-1).view(np.uint8)):
            digest.update(part)
    return digest.digest()


def _part_digests(data: Array) -> list[bytes]:
    return in_parts(lambda part: hashlib.blake2b(data[part].data).digest(), data.size, 1)


def try_variant(bench: Bench, variant: Variant, case: str | None = None) -> tuple[Result, Plan | None, bytes]:
    """Compute the problem with a variant and hold it against float64.

    Gives the result, and for a variant that is right its plan and the digest of its output.
    """
    result = blank_result(variant, bench.problem, case)
    try:
        plan = bench.prepare(variant)
        result = replace(result, **bench.spent)
        bench.outputs(variant).poison()
        plan.run()
        accuracy, bits = bench.first_outcome(plan)
    except WebnormError as error:
        refused = variant.refusal(bench.problem_of(variant), bench.device.traits) is not None
        return replace(result, status="skip" if refused else "error", reason=str(error)), None, b""
    except wgpu.GPUError as error:
        return replace(result, reason=f"wgpu refused to run it: {read_report(str(error))[1]}"), None, b""
    return with_accuracy(result, accuracy), plan if accuracy.ok else None, bits


def repeated(bench: Bench, result: Result, plan: Plan, bits: bytes) -> Result:
    """The result of a variant whose outputs were just written again: every set must hold the same bits."""
    if bench.holds(plan, bits):
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
    calls: Calls = "one by one"


def time_variants(device: Device, job: TimingJob) -> Iterator[Any]:
    """Try each variant, then time those that are right in turn; the last round is checked again."""
    op = next((OPS[spec.op] for spec in job.variants if not OPS[spec.op].exact), OPS["copy"])
    check_memory(job.problem, op, device, job.sets)
    bench = Bench(device, job.problem, make_inputs(op, job.problem), job.roots, job.sets, job.calls)
    yield from time_side_by_side(bench, job.variants, job.rule)


@dataclass
class _Running:
    """A variant that is right: how to run it, the bits that it gave, and how it is sampled."""

    index: int
    result: Result
    plan: Plan
    bits: bytes | None
    sampler: timing.Sampler
    dispatches: int
    samples: list[float]


def time_side_by_side(
    bench: Bench,
    variants: Sequence[VariantSpec],
    rule: timing.Rule,
    sieve: Bench | None = None,
    whole: Collection[int] = (),
    between: Callable[[], None] | None = None,
) -> Iterator[Any]:
    """`time_variants` on buffers that are there already.

    With a `sieve`, a bench of fewer rows, only the variants whose numbers are in `whole` are held against
    float64 on the bench itself, before and after; the others on the sieve. `between` is called after each
    round, for what is sampled beside the variants.
    """
    right: list[tuple[int, Result, Plan, bytes | None]] = []
    for index, spec in enumerate(variants):
        yield Began(index)
        bits: bytes | None
        if sieve is None or index in whole:
            result, plan, bits = try_variant(bench, spec.variant())
        else:
            result, plan, bits = *_sieved(bench, spec.variant(), sieve), None
        if plan is None:
            yield Found(index, result)
        else:
            right.append((index, result, plan, bits))
    if not right:
        return

    stopwatch = Stopwatch(bench.device)
    pace = yardstick(bench, stopwatch, rule.settle_s)
    running = []
    for index, result, plan, bits in right:
        yield Began(index)
        pace.ready()
        running.append(_Running(index, result, plan, bits, *stopwatch.sampler(plan), []))
        pace.worked()
    samplers, samples = [one.sampler for one in running], [one.samples for one in running]
    for event in timing.take_turns(samplers, samples, rule, pace, between):
        yield Began(running[event.index].index) if isinstance(event, timing.Turn) else event

    # What the copies went through, everything did.
    copies = [one.samples for one in running if one.result.roofline]
    drifted = bool(copies) and timing.drifting(min(copies, key=lambda own: timing.statistics(own).median))
    for one in running:
        yield Began(one.index)
        result = one.result
        if one.bits is not None:
            # The check is of the buffers that were timed, all of them: this sample counts like the others.
            bench.outputs(one.plan.shader.variant).poison()
            pace.ready()
            one.samples.append(stopwatch.time(one.plan, max(one.dispatches, bench.sets)))
            pace.worked()
            result = repeated(bench, result, one.plan, one.bits)
        if result.status == "pass":
            raised = (("unsettled", not pace.settled), ("drifting", drifted))
            remarks = tuple(flag for flag, holds in raised if holds)
            result = _measured(bench, stopwatch.method, result, one, remarks)
        yield Found(one.index, result)


def yardstick(bench: Bench, stopwatch: Stopwatch, settle_s: float) -> timing.Pace:
    """The pace of a copy of the bench's problem, as it runs by default."""
    copy = load(wgsl_root() / "copy" / "copy.wgsl")
    traits = bench.device.traits
    variant = default_variant(copy, plain(bench.problem), traits)
    sampler, _ = stopwatch.sampler(bench.prepare(variant))
    return timing.Pace(sampler, min(settle_s, SOFTWARE_SETTLES_S) if traits.software else settle_s)


def _sieved(bench: Bench, variant: Variant, sieve: Bench) -> tuple[Result, Plan | None]:
    """What the sieve says of a variant, and for one that is right its plan on the bench."""
    result, plan, _ = try_variant(sieve, variant)
    if plan is None:
        return replace(result, problem=bench.problem), None
    try:
        return replace(result, problem=bench.problem), bench.prepare(variant)
    except (WebnormError, wgpu.GPUError) as error:
        return replace(result, problem=bench.problem, status="error", reason=str(error)), None


def _measured(
    bench: Bench, method: timing.Method, result: Result, one: _Running, remarks: tuple[str, ...]
) -> Result:
    """The result with its times; `remarks` are flags of the whole run."""
    size = one.plan.shader.variant.kernel.op.minimum_bytes(bench.problem_of(one.plan.shader.variant))
    return replace(
        with_samples(result, one.samples, size),
        dispatches_per_sample=one.dispatches,
        timing_method=method,
        cache="cold" if bench.cold else "warm",
        calls=bench.calls,
        flags=(*timing.flags(one.samples), *remarks),
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
        result, plan, bits = try_variant(bench, spec.variant(), job.case)
        if plan is not None:
            bench.outputs(plan.shader.variant).poison()
            plan.run()
            result = repeated(bench, result, plan, bits)
        yield Found(index, result)


def describe(device: Device, job: None) -> Iterator[Any]:
    """The device's description and traits."""
    yield device.description(), device.traits
