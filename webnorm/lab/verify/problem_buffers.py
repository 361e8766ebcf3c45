"""The buffers of one problem on a device and their expected contents, shared by all its variants.

Rows of a large problem repeat, so that all of them are compared with float64 in little time.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from webnorm.errors import WebnormError
from webnorm.gpu.buffers import POISON, Inputs, Outputs, as_array
from webnorm.gpu.compute_programs import PreparedDispatches
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import create_module, create_pipelines
from webnorm.gpu.schedule import Plan
from webnorm.gpu.stopwatch import SetRotation
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.results.result import Calls
from webnorm.lab.verify.accuracy import Accuracy, assess
from webnorm.lab.verify.clobber import clobberer_of, comparer_of, output_buffers, scratch_buffers
from webnorm.lab.verify.deviations import batch_part
from webnorm.op.blocks import map_row_blocks
from webnorm.op.corpus import ForceSplit
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Expected, ExpectedOutputs, Op, Task, Tensor, make_inputs
from webnorm.op.problem import Problem
from webnorm.op.registry import as_copy_problem, copy_op

# The largest last-level cache of a GPU today: AMD's MI300 has 256 MB.
LARGEST_CACHE = 256 << 20
# The number of successive dispatches that have to agree. It exceeds 16, because a kernel might count its
# dispatches up to that number. A software adapter runs fewer, limited by the number of elements or
# invocations: SwiftShader takes seconds for a dispatch of three million invocations with barriers.
_STEPS, _FEWEST_STEPS, _SOFTWARE_WORK = 33, 3, 1 << 22

# The digests of the right outputs, one for each version of the inputs.
Golden = tuple[bytes, ...]
# Elements of x that are drawn and compared with float64: 64 rows of 16384, or more shorter ones.
_DRAWN_ELEMENTS = 1 << 20
# This many rows of the narrowest type are whole words for any number of columns.
_WHOLE_WORDS = 4


class RepeatedRowsDiffer(WebnormError):
    """Rows with the same inputs have different outputs."""


class OpInputs:
    """The inputs of the kernels of one op on a problem: arrays in two versions, and buffers if created."""

    def __init__(self, task: Task, arrays: Mapping[str, Array]) -> None:
        self.task, self.arrays = task, arrays
        self.buffers: Inputs | None = None

    @property
    def batched(self) -> set[str]:
        """The names of the batched tensors."""
        return {name for name, tensor in self.task.op.named.items() if tensor.batched}

    def version(self, number: int) -> Mapping[str, Array]:
        """Return a version of the arrays, with the batch in the order of the first version."""
        return self.other if number and self.task.problem.batch_size == 1 else self.arrays

    @cached_property
    def other(self) -> Mapping[str, Array]:
        """The arrays with the batch shifted by one; a batch of one element is replaced by another."""
        if self.task.problem.batch_size == 1:
            other: Mapping[str, Array] = self.task.op.hook("other_version")(self.task, self.arrays)
            return other
        return {
            name: np.roll(array, 1, axis=0) if name in self.batched else array
            for name, array in self.arrays.items()
        }


def repeated_dispatches(traits: Traits, work: int) -> int:
    """Return the number of dispatches that must agree; `work` counts a dispatch's elements or invocations."""
    return max(_FEWEST_STEPS, min(_STEPS, _SOFTWARE_WORK // max(work, 1))) if traits.software else _STEPS


class ProblemBuffers:
    """One problem's buffers on the device, and the reference answers, shared by all its variants.

    There are two versions of the inputs, which alternate between dispatches. The second version has the batch
    shifted by one; a batch of one element is replaced by another. Output buffers therefore always contain
    answers to other inputs, as for real callers.

    Dispatches on different sets of buffers do not wait for each other, so that several may run at once. With
    `calls` "one by one" all of them share a writable buffer, so that each waits for the one before, like the
    calls of one caller.

    `narrow` forces a split that the device does not require. `copied` is the problem of the copy, by default
    the copy op's version of the task's problem. `spent` contains the nanoseconds of the last `prepare`, by
    field of Result.
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
        copied: Problem | None = None,
    ) -> None:
        self.copied = as_copy_problem(task.problem) if copied is None else copied
        self.device, self.op, self.problem = device, task.op, task.problem
        self.arrays, self.roots = arrays, roots
        self.sets, self.calls, self.narrow = sets, calls, narrow
        self.turns = SetRotation()
        # With one set every dispatch writes the same buffers, and waits without a shared one.
        self._shared = [device.create_buffer(16)] if sets > 1 and calls == "one by one" else []
        self.spent: dict[str, Any] = {}
        self._answers: dict[tuple[str, bytes, int], ExpectedOutputs] = {}
        self._inputs = {task.op.name: OpInputs(task, arrays)}
        self._outputs: dict[str, Outputs] = {}
        self._kept: dict[str, tuple[dict[str, Any], ...]] = {}
        self._clobbering: dict[str, tuple[PreparedDispatches, ...]] = {}

    @property
    def cold(self) -> bool:
        """True if a copy of all sets in turn moves more bytes than any cache of the device can store."""
        size = copy_op().minimum_bytes(self.copied)
        return not self.device.traits.software and size * self.sets >= LARGEST_CACHE

    @property
    def versions(self) -> int:
        """The number of versions of the inputs; 1 for a problem without rows."""
        return 2 if self.problem.batch_size else 1

    def answers(
        self, variant: Variant, outputs: Mapping[str, tuple[Array, bool]], version: int = 0
    ) -> ExpectedOutputs:
        """Return the op's float64 answers, computed once; outputs that feed others are used as written.

        Rows are in the order of the first version of the inputs.
        """
        op = variant.kernel.op
        fed = {name: array for name, (array, _) in outputs.items() if op.named[name].feeds}
        arrays = self.inputs_of(variant).version(version)
        key = op.name, _digest(fed), int(arrays is not self.inputs_of(variant).arrays)
        if key not in self._answers:
            self._answers[key] = op.reference({**arrays, **fed}, self.problem_of(variant))
        return self._answers[key]

    def arrays_of(self, version: int) -> Mapping[str, Array]:
        """Return a version of the inputs, with the batch in the order of the first version."""
        return self._inputs[self.op.name].version(version)

    def inputs_of(self, variant: Variant) -> OpInputs:
        """Return the inputs of a variant's op: the problem's arrays, or a copy's own for other shapes."""
        op = variant.kernel.op
        if op.name not in self._inputs:
            task = Task(op, self.drawn_problem(variant))
            read = op.inputs(task.problem)
            own = self._inputs[self.op.name]
            if all(_is_of(one, task.problem, self.arrays.get(one.name)) for one in read):
                self._inputs[op.name] = own
            else:
                self._inputs[op.name] = OpInputs(task, make_inputs(op, task.problem))
        return self._inputs[op.name]

    def drawn_problem(self, variant: Variant) -> Problem:
        """Return the problem of the arrays of a variant's op."""
        return self.problem_of(variant)

    def problem_of(self, variant: Variant) -> Problem:
        """Return the problem of the variant's op: a copy has its own."""
        problem: Problem = self.copied if variant.kernel.op.is_copy else self.problem
        return problem

    def prepare(self, variant: Variant) -> Plan:
        """Render, compile and bind a variant; raise WebnormError if it cannot run."""
        return self.bind(self.render(variant))

    def render(self, variant: Variant) -> Shader:
        """Render a variant, the first half of `prepare`."""
        problem = self.problem_of(variant)
        refusal = variant.refusal(problem, self.device.traits)
        if refusal:
            raise WebnormError(refusal)
        with self._spending("render_ns"):
            return render_shader(variant, problem, self.device.target, self.device.traits, roots=self.roots)

    def bind(self, shader: Shader) -> Plan:
        """Compile a shader of this problem and bind it to the buffers."""
        with self._spending("compile_ns"):
            module = create_module(self.device, shader)
        shared = self._shared
        bound = max(len(each.bindings) for each in shader.passes) + len(shared)
        if shared and bound > self.device.limits["max-storage-buffers-per-shader-stage"]:
            raise WebnormError(
                f"{shader.variant} uses all storage bindings of this device, and timing calls one by one "
                "needs one more; use fewer options, or --at-once"
            )
        with self._spending("pipeline_ns"):
            pipelines = create_pipelines(self.device, shader, module, len(shared))
        given = self.inputs_of(shader.variant)
        if given.buffers is None:
            given.buffers = self.uploaded(given)
        outputs = self.outputs(shader.variant).buffers
        return Plan(self.device, shader, given.buffers.buffers, outputs, pipelines, shared, self.narrow)

    def uploaded(self, given: OpInputs) -> Inputs:
        """Create the buffers that all variants of an op read, with both versions of the arrays."""
        return Inputs(self.device, given.arrays, self.sets, None if self.versions == 1 else given.other)

    @contextmanager
    def _spending(self, name: str) -> Iterator[None]:
        began = time.perf_counter_ns()
        yield
        self.spent[name] = float(time.perf_counter_ns() - began)

    def outputs(self, variant: Variant) -> Outputs:
        """Return the buffers that all variants of an op write."""
        op = variant.kernel.op
        if op.name not in self._outputs:
            shared = {
                name: buffers for other in self._outputs.values() for name, buffers in other.buffers.items()
            }
            problem = self.problem_of(variant)
            self._outputs[op.name] = Outputs(self.device, problem, op.outputs(problem), self.sets, shared)
        return self._outputs[op.name]

    # --- Running plans and checking their outputs.

    def run(self, plan: Plan, version: int) -> int:
        """Run a version of the inputs on poisoned outputs and noisy scratch; return the index of its set."""
        # Set 1 uses the second version. With a single set, dispatch number 1 does.
        at = version % self.sets
        self.outputs(plan.shader.variant).poison()
        self.device.run_pass(self.clobbering(plan)(range(0)).encode)
        plan.run(version - at)
        return at

    def outcome(self, plan: Plan, version: int = 0, at: int = 0) -> tuple[Accuracy, bytes]:
        """Return the errors of a set with the outputs for a version of the inputs, and a digest."""
        got = self.read(plan, version, at)
        return self.assess(plan, got, version), output_digest(got)

    def assess(self, plan: Plan, got: Mapping[str, tuple[Array, bool]], version: int) -> Accuracy:
        """Compare outputs with float64; their rows are in the order of the first version of the inputs."""
        return assess(got, self.answers(plan.shader.variant, got, version), plan.shader)

    def read(self, plan: Plan, version: int, at: int) -> dict[str, tuple[Array, bool]]:
        """Return the outputs of a set for a version, with rows in the order of the first version."""
        outputs = self.outputs(plan.shader.variant)
        got = outputs.read_all(at)
        if version and outputs.problem.batch_size > 1:
            for name, tensor in outputs.tensors.items():
                array, intact = got[name]
                if tensor.batched:
                    got[name] = np.roll(array, -1, axis=0), intact
        return got

    def version(self, plan: Plan, index: int) -> int:
        """Return the version of the inputs that a dispatch with this number uses."""
        return plan.input_set(index) % self.versions

    def holds(self, plan: Plan, golden: Golden, dispatches: range) -> bool:
        """Return true if every set written by these dispatches contains the right bits and intact guards.

        The right bits of a set are the `golden` ones for the last dispatch on it.
        """
        outputs = self.outputs(plan.shader.variant)
        last = dispatches[-self.sets :]
        for version in {self.version(plan, index) for index in last}:
            members = [index % self.sets for index in last if self.version(plan, index) == version]
            got = self.read(plan, version, members[0])
            if not all(intact for _, intact in got.values()) or output_digest(got) != golden[version]:
                return False
            if len(members) > 1 and not comparer_of(self.device).of(outputs.sized(members)):
                return False
        return True

    def keep(self, plan: Plan, version: int, at: int) -> None:
        """Keep a set's outputs as the right ones for a version, for `steady`."""
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
        """Return true if successive dispatches give the kept bits, whatever earlier ones left in the buffers.

        Outputs and scratch contain data of other inputs, and noise halfway through.
        """
        outputs, name = self.outputs(plan.shader.variant), plan.shader.variant.kernel.op.name
        comparisons = [
            comparer_of(self.device).between(
                [
                    ([kept[tensor], outputs.buffers[tensor][0]], size)
                    for tensor, (_, size) in zip(outputs.buffers, outputs.sized([0]), strict=True)
                ]
            )
            for kept in self._kept[name]
        ]
        steps = repeated_dispatches(self.device.traits, max(self.problem.elements, plan.invocations))

        def one_after_another(compute: Any) -> None:
            for step in range(steps):
                if step == steps // 2:
                    self.clobbering(plan)(range(self.sets)).encode(compute)
                index = step * self.sets
                plan.encode(compute, index)
                comparisons[self.version(plan, index)].encode(compute)

        comparer_of(self.device).forget()
        self.device.run_pass(one_after_another)
        return not comparer_of(self.device).found_differences()

    def clobbering(self, plan: Plan) -> Callable[[range], PreparedDispatches]:
        """Return a function that makes dispatches which overwrite all that a plan may write.

        These are outputs, scratch and workgroup memory. The function takes the numbers of the plan's
        dispatches, and limits the work to the sets that they write.
        """
        variant = plan.shader.variant
        op = variant.kernel.op.name
        if op not in self._clobbering:
            written = self.outputs(variant)
            self._clobbering[op] = tuple(
                clobberer_of(self.device).over(output_buffers(written, at), memory=False)
                for at in range(self.sets)
            )
        outputs, own = (
            self._clobbering[op],
            clobberer_of(self.device).over(scratch_buffers(plan, self._shared)),
        )

        def of(dispatches: range) -> PreparedDispatches:
            return PreparedDispatches.of(
                [*(outputs[index % self.sets] for index in dispatches[: self.sets]), own]
            )

        return of

    def clobber_scratch(self, plan: Plan) -> PreparedDispatches:
        """Return dispatches that overwrite only scratch, which is fast compared with a dispatch."""
        return clobberer_of(self.device).over(scratch_buffers(plan, self._shared), memory=False)


def _is_of(tensor: Tensor, problem: Problem, array: Array | None) -> bool:
    """Return true if an array has the shape and type of a problem's tensor."""
    return (
        array is not None
        and array.shape == tensor.shape_in(problem)
        and array.dtype == DTYPES[tensor.dtype(problem)]
    )


def output_digest(outputs: Mapping[str, tuple[Array, bool]]) -> bytes:
    """Return a digest of the bits of outputs."""
    return _digest({name: array for name, (array, _) in outputs.items()})


def _digest(arrays: Mapping[str, Array]) -> bytes:
    digest = hashlib.blake2b()
    for array in arrays.values():
        for part in _part_digests(np.ascontiguousarray(array).reshape(-1).view(np.uint8)):
            digest.update(part)
    return digest.digest()


def _part_digests(data: Array) -> list[bytes]:
    return map_row_blocks(lambda part: hashlib.blake2b(data[part].data).digest(), data.size, 1)


def block_of(task: Task, device: Device) -> Problem:
    """Return the problem of the block of rows that a task's problem repeats.

    It is the problem itself if that is small, or if rows are so long that the device cannot bind a block.
    """
    problem: Problem = task.problem
    enough = math.ceil(_DRAWN_ELEMENTS / max(1, problem.inner) / _WHOLE_WORDS) * _WHOLE_WORDS
    block = problem.with_batch(min(enough, problem.batch_size))
    batched = (tensor.data_bytes(block) for tensor in task.op.present(block) if tensor.batched)
    return block if max(batched, default=0) <= device.limits["max-storage-buffer-binding-size"] else problem


class RepeatedRows(ProblemBuffers):
    """The buffers of a problem whose rows repeat a block of rows. `arrays` are the block's.

    The block is compared with float64. The device checks that all other rows equal it bit for bit. Sums over
    rows are compared with multiples of the block's sums. `block` contains the buffers of the block alone. A
    copy whose rows differ from the op's repeats its own block.
    """

    def __init__(
        self,
        device: Device,
        task: Task,
        sets: int,
        roots: Sequence[Path] = (),
        calls: Calls = "one by one",
        draw: Callable[[Op, Problem], Mapping[str, Array]] = make_inputs,
    ) -> None:
        block = block_of(task, device)
        arrays = draw(task.op, block)
        super().__init__(device, task, arrays, roots, sets, calls)
        # With two sets the block shares a buffer between dispatches too, so that both use the same compiled
        # shaders.
        copied = block_of(Task(copy_op(), self.copied), device)
        self.block = ProblemBuffers(
            device, Task(task.op, block), arrays, roots, min(sets, 2), calls, copied=copied
        )
        self._rests: dict[tuple[str, int], ExpectedOutputs] = {}

    @property
    def times(self) -> int:
        """The number of whole repetitions of the block."""
        times: int = self.problem.batch_size // max(1, self.block.problem.batch_size)
        return times

    def drawn_problem(self, variant: Variant) -> Problem:
        """Return the block of the variant's op."""
        return self.block.problem_of(variant)

    def uploaded(self, given: OpInputs) -> Inputs:
        """Create the buffers with repeated rows."""
        others = None if self.versions == 1 else given.other
        batch = (self.copied if given.task.op.is_copy else self.problem).batch_size
        return Inputs(self.device, given.arrays, self.sets, others, batch, given.batched)

    def answers(
        self, variant: Variant, outputs: Mapping[str, tuple[Array, bool]], version: int = 0
    ) -> ExpectedOutputs:
        """Return the op's float64 answers for the block; sums over rows include all rows."""
        answers = self.block.answers(variant, outputs, version)
        if all(answer.abs_sum is None for answer in answers.values()):
            return answers
        rest = self._rest(variant, version)
        return {name: _sum_of_all(one, self.times, rest.get(name)) for name, one in answers.items()}

    def _rest(self, variant: Variant, version: int) -> ExpectedOutputs:
        """Return the answers for the rows after the last whole block; none without such rows."""
        most = max(1, self.block.problem.batch_size)
        count = self.problem.batch_size % most
        op = variant.kernel.op
        key = op.name, version
        if count and key not in self._rests:
            # Rows are in the order of the first version, so that the row shifted from the end comes last.
            taken = (np.arange(count) - version) % most
            arrays = batch_part(self.op, self.arrays_of(version), taken)
            self._rests[key] = op.reference(arrays, self.problem_of(variant).with_batch(count))
        return self._rests.get(key, {})

    def read(self, plan: Plan, version: int, at: int) -> dict[str, tuple[Array, bool]]:
        """Return the outputs of the block's rows; raise RepeatedRowsDiffer if other rows differ."""
        block = self.drawn_problem(plan.shader.variant)
        outputs = self.outputs(plan.shader.variant)
        if block == outputs.problem:
            return super().read(plan, version, at)
        count = block.batch_size
        return {
            name: self._block_of(outputs, name, version, at, count)
            if tensor.batched
            else outputs.read(name, at)
            for name, tensor in outputs.tensors.items()
        }

    def _block_of(self, outputs: Outputs, name: str, version: int, at: int, count: int) -> tuple[Array, bool]:
        """Return an output's first `count` elements of the batch, and check that all others repeat them."""
        tensor, buffer = outputs.tensors[name], outputs.buffers[name][at]
        problem = outputs.problem.with_batch(count)
        size, end = tensor.data_bytes(problem), tensor.data_bytes(outputs.problem)
        whole, queue = end // 4 * 4, self.device.handle.queue
        raw = np.frombuffer(queue.read_buffer(buffer, 0, size), np.uint8)
        behind = np.frombuffer(queue.read_buffer(buffer, whole, buffer.size - whole), np.uint8)
        # The rest of the last element's word is neither data nor guard.
        last, guard = behind[: end - whole], behind[4 if end > whole else 0 :]
        alike = comparer_of(self.device).repeats(buffer, size, whole)
        if not alike or last.tobytes() != raw[whole % size :][: last.size].tobytes():
            raise RepeatedRowsDiffer(f"{name}: equal {problem.BATCH} gave different outputs")
        array = as_array(raw, tensor, problem)
        intact = bool(np.all(guard.view(np.uint32) == POISON))
        return np.roll(array, -1, axis=0) if version else array, intact

    def holds(self, plan: Plan, golden: Golden, dispatches: range) -> bool:
        """Return true if the sets contain the right bits, and all rows repeat the block."""
        try:
            return super().holds(plan, golden, dispatches)
        except RepeatedRowsDiffer:
            return False


def _sum_of_all(block: Expected, times: int, rest: Expected | None) -> Expected:
    """Return the answer for all rows: sums over rows add `times` blocks and the rest, others stay."""
    if block.abs_sum is None:
        return block

    def of(name: str) -> Array:
        total: Array = getattr(block, name) * times
        return total if rest is None else total + getattr(rest, name)

    return Expected(of("value"), of("error_scale"), of("mean_error_scale"), of("abs_sum"))
