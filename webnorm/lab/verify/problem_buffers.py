"""The buffers of one problem on a device, and what has to lie in them: shared by all variants tried on it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from webnorm.errors import WebnormError
from webnorm.gpu.buffers import Inputs, Outputs
from webnorm.gpu.compute_programs import PreparedDispatches
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import create_module, create_pipelines
from webnorm.gpu.plan import Plan
from webnorm.gpu.stopwatch import SetRotation
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.results.result import Calls
from webnorm.lab.verify.accuracy import Accuracy, assess
from webnorm.lab.verify.clobber import output_buffers, sameness_of, scratch_buffers, spoiler_of
from webnorm.op.blocks import map_row_blocks
from webnorm.op.corpus import ForceSplit
from webnorm.op.dtypes import Array
from webnorm.op.op import ExpectedOutputs, Task
from webnorm.op.problem import Problem
from webnorm.op.registry import as_copy_problem, copy_op

# The largest last-level cache of a GPU today: AMD's MI300 has 256 MB.
LARGEST_CACHE = 256 << 20
# Dispatches that follow one another and have to agree: more than the 16 that a kernel may count to, and on a
# software adapter so many that they touch about as many elements.
_STEPS, _FEWEST_STEPS, _STEP_ELEMENTS = 33, 3, 1 << 22

# The bits of what is right for each version of the inputs: a digest each.
Golden = tuple[bytes, ...]


class RepeatedRowsDiffer(WebnormError):
    """Outputs of rows that hold the same differ."""


class ProblemBuffers:
    """One problem's buffers on the device, and the reference answers, shared by every variant tried on it.

    Inputs are there in two versions, which the dispatches take in turn: the batch moves on by one from the
    first to the second, a single element of it becomes another. So what lies in a buffer of outputs is what
    callers leave there, answers to something else.

    Dispatches on different sets of buffers have nothing to wait for: several run at a time where the device
    has room. With `calls` "one by one" all of them may write to a buffer that they share, so that each waits
    for the one before, as the calls of one caller do.
    `narrow` has rows cut into slices although the device has room for them.
    `spent` has the nanoseconds of the last `prepare`, as a Result names them.
    """

    def __init__(
        self,
        device: Device,
        task: Task,
        arrays: Mapping[str, Array],
        roots: Sequence[Path],
        sets: int = 1,
        calls: Calls = "one by one",
        narrow: ForceSplit | None = None,
    ) -> None:
        self.device, self.op, self.problem, self.arrays, self.roots = (
            device,
            task.op,
            task.problem,
            arrays,
            roots,
        )
        self.sets, self.calls, self.narrow = sets, calls, narrow
        self.turns = SetRotation()
        # One set is written again by every dispatch, which is reason enough to wait.
        self._shared = [device.create_buffer(16)] if sets > 1 and calls == "one by one" else []
        self.spent: dict[str, Any] = {}
        self._answers: dict[tuple[str, bytes, int], ExpectedOutputs] = {}
        self._inputs: Inputs | None = None
        self._outputs: dict[str, Outputs] = {}
        self._kept: dict[str, tuple[dict[str, Any], ...]] = {}
        self._spoils: dict[str, tuple[PreparedDispatches, ...]] = {}

    @property
    def cold(self) -> bool:
        """Whether a copy of all sets in turn moves more than any cache of the device holds."""
        size = copy_op().minimum_bytes(as_copy_problem(self.problem))
        return not self.device.traits.software and size * self.sets >= LARGEST_CACHE

    @property
    def versions(self) -> int:
        """How many versions of the inputs there are; one without rows."""
        return 2 if self.problem.batch else 1

    def answers(
        self, variant: Variant, outputs: Mapping[str, tuple[Array, bool]], version: int = 0
    ) -> ExpectedOutputs:
        """The op's float64 answers, worked out once; for each output that feeds others as it was written.

        Rows stand as in the first version of the inputs.
        """
        op = variant.kernel.op
        fed = {name: array for name, (array, _) in outputs.items() if op.named[name].feeds}
        arrays = self.arrays_of(version)
        key = op.name, _digest(fed), int(arrays is not self.arrays)
        if key not in self._answers:
            self._answers[key] = op.reference({**arrays, **fed}, self.problem_of(variant))
        return self._answers[key]

    def arrays_of(self, version: int) -> Mapping[str, Array]:
        """A version of the inputs, whose batch stands as in the first."""
        return self._other if version and self.problem.batch == 1 else self.arrays

    @cached_property
    def _other(self) -> Mapping[str, Array]:
        """The arrays with the batch moved on by one; a single element of it is made another."""
        if self.problem.batch == 1:
            other: Mapping[str, Array] = self.op.hook("other_version")(self.arrays)
            return other
        batched = {name for name, tensor in self.op.named.items() if tensor.batched}
        return {
            name: np.roll(array, 1, axis=0) if name in batched else array
            for name, array in self.arrays.items()
        }

    def problem_of(self, variant: Variant) -> Problem:
        """The problem as the variant's op sees it: a copy has no options."""
        return variant.kernel.op.copied_problem(self.problem)

    def prepare(self, variant: Variant) -> Plan:
        """Render, compile and bind; raises WebnormError for what cannot run here."""
        return self.bind(self.render(variant))

    def render(self, variant: Variant) -> Shader:
        """The first half of `prepare`."""
        problem = self.problem_of(variant)
        refusal = variant.refusal(problem, self.device.traits)
        if refusal:
            raise WebnormError(refusal)
        with self._spending("render_ns"):
            return render_shader(variant, problem, "native", self.device.traits, roots=self.roots)

    def bind(self, shader: Shader) -> Plan:
        """Compile a shader of this problem and bind it to the buffers."""
        with self._spending("compile_ns"):
            module = create_module(self.device, shader)
        shared = self._shared
        bound = max(len(each.bindings) for each in shader.passes) + len(shared)
        if shared and bound > self.device.limits["max-storage-buffers-per-shader-stage"]:
            raise WebnormError(
                f"{shader.variant} binds as many storage buffers as this device has, and timing calls "
                "one by one takes one more: expected fewer options, or --at-once"
            )
        with self._spending("pipeline_ns"):
            pipelines = create_pipelines(self.device, shader, module, len(shared))
        if self._inputs is None:
            others = None if self.versions == 1 else self._other
            self._inputs = self.inputs(others)
        outputs = self.outputs(shader.variant).buffers
        return Plan(self.device, shader, self._inputs.buffers, outputs, pipelines, shared, self.narrow)

    def inputs(self, others: Mapping[str, Array] | None) -> Inputs:
        """The buffers that all variants read, with the arrays and their other version, where there is one."""
        return Inputs(self.device, self.arrays, self.sets, others)

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

    # --- what was computed, and whether it is right

    def run(self, plan: Plan, version: int) -> int:
        """Compute a version of the inputs on poisoned outputs and spoiled scratch; gives the set it is in."""
        # Set 1 takes the other version, and where there is one set the dispatch of number 1 does.
        at = version % self.sets
        self.outputs(plan.shader.variant).poison()
        self.device.run_pass(self.spoiling(plan)(range(0)).encode)
        plan.run(version - at)
        return at

    def outcome(self, plan: Plan, version: int = 0, at: int = 0) -> tuple[Accuracy, bytes]:
        """Errors of a set that holds the outputs of a version of the inputs, and a digest of its bits."""
        got = self.read(plan, version, at)
        return self.judged(plan, got, version), output_digest(got)

    def judged(self, plan: Plan, got: Mapping[str, tuple[Array, bool]], version: int) -> Accuracy:
        """Outputs held against float64; their rows stand as in the first version of the inputs."""
        return assess(got, self.answers(plan.shader.variant, got, version), plan.shader)

    def read(self, plan: Plan, version: int, at: int) -> dict[str, tuple[Array, bool]]:
        """The outputs of a set that holds those of a version, rows as in the first version of the inputs."""
        outputs = self.outputs(plan.shader.variant)
        got = outputs.read_all(at)
        if version and self.problem.batch > 1:
            for name, tensor in outputs.tensors.items():
                array, intact = got[name]
                if tensor.batched:
                    got[name] = np.roll(array, -1, axis=0), intact
        return got

    def version(self, plan: Plan, index: int) -> int:
        """Which version of the inputs a dispatch of that number takes."""
        return plan.input_set(index) % self.versions

    def holds(self, plan: Plan, golden: Golden, dispatches: range) -> bool:
        """Whether every set that these dispatches wrote has the bits that the last of them on it had to put
        there, with all guards intact.
        """
        outputs = self.outputs(plan.shader.variant)
        last = dispatches[-self.sets :]
        for version in {self.version(plan, index) for index in last}:
            members = [index % self.sets for index in last if self.version(plan, index) == version]
            got = self.read(plan, version, members[0])
            if not all(intact for _, intact in got.values()) or output_digest(got) != golden[version]:
                return False
            if len(members) > 1 and not sameness_of(self.device).of(outputs.sized(members)):
                return False
        return True

    def keep(self, plan: Plan, version: int, at: int) -> None:
        """Keep a set's outputs as what is right for a version, for `steady`."""
        outputs = self.outputs(plan.shader.variant)
        op = plan.shader.variant.kernel.op.name
        if op not in self._kept:
            self._kept[op] = tuple(
                {name: self.device.create_buffer(own[0].size) for name, own in outputs.buffers.items()}
                for _ in range(self.versions)
            )
        encoder = self.device.handle.create_command_encoder()
        for name, kept in self._kept[op][version].items():
            encoder.copy_buffer_to_buffer(outputs.buffers[name][at], 0, kept, 0, kept.size)
        self.device.handle.queue.submit([encoder.finish()])

    def steady(self, plan: Plan) -> bool:
        """Whether one dispatch after another gives the bits that were kept, whatever the ones before it left:
        in outputs the answers to other inputs, in scratch what belongs to them; half way through, noise.
        """
        outputs, name = self.outputs(plan.shader.variant), plan.shader.variant.kernel.op.name
        comparisons = [
            sameness_of(self.device).between(
                [
                    ([kept[tensor], outputs.buffers[tensor][0]], size)
                    for tensor, (_, size) in zip(outputs.buffers, outputs.sized([0]), strict=True)
                ]
            )
            for kept in self._kept[name]
        ]
        elements = self.problem.elements
        steps = _STEPS if not self.device.traits.software else min(_STEPS, _STEP_ELEMENTS // max(elements, 1))

        def one_after_another(compute: Any) -> None:
            for step in range(max(steps, _FEWEST_STEPS)):
                if step == steps // 2:
                    self.spoil(plan).encode(compute)
                index = step * self.sets
                plan.encode(compute, index)
                comparisons[self.version(plan, index)].encode(compute)

        sameness_of(self.device).forget()
        self.device.run_pass(one_after_another)
        return not sameness_of(self.device).found_differences()

    def spoil(self, plan: Plan) -> PreparedDispatches:
        """What changes all that a plan may write: every set of outputs, scratch, workgroup memory."""
        return self.spoiling(plan)(range(self.sets))

    def spoiling(self, plan: Plan) -> Callable[[range], PreparedDispatches]:
        """The same for the sets that dispatches of these numbers write, so that few of them take little."""
        variant = plan.shader.variant
        op = variant.kernel.op.name
        if op not in self._spoils:
            written = self.outputs(variant)
            self._spoils[op] = tuple(
                spoiler_of(self.device).over(output_buffers(written, at), memory=False)
                for at in range(self.sets)
            )
        outputs, own = self._spoils[op], spoiler_of(self.device).over(scratch_buffers(plan, self._shared))

        def of(dispatches: range) -> PreparedDispatches:
            return PreparedDispatches.of(
                [*(outputs[index % self.sets] for index in dispatches[: self.sets]), own]
            )

        return of

    def spoil_scratch(self, plan: Plan) -> PreparedDispatches:
        """What changes scratch alone, which is little beside a dispatch."""
        return spoiler_of(self.device).over(scratch_buffers(plan, self._shared), memory=False)


def output_digest(outputs: Mapping[str, tuple[Array, bool]]) -> bytes:
    """A digest of the bits of outputs."""
    return _digest({name: array for name, (array, _) in outputs.items()})


def _digest(arrays: Mapping[str, Array]) -> bytes:
    digest = hashlib.blake2b()
    for array in arrays.values():
        for part in _part_digests(np.ascontiguousarray(array).reshape(-1).view(np.uint8)):
            digest.update(part)
    return digest.digest()


def _part_digests(data: Array) -> list[bytes]:
    return map_row_blocks(lambda part: hashlib.blake2b(data[part].data).digest(), data.size, 1)
