"""A board for large problems: rows repeat, so that all of them are held against float64 in little time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from webnorm.gpu.buffers import POISON, Inputs, Outputs, as_array
from webnorm.gpu.device import Device
from webnorm.gpu.plan import Plan
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.results.result import Calls
from webnorm.lab.verify.clobber import sameness_of
from webnorm.lab.verify.problem_buffers import Golden, ProblemBuffers, RepeatedRowsDiffer
from webnorm.op.dtypes import Array
from webnorm.op.op import Expected, ExpectedOutputs, Task, make_inputs
from webnorm.op.problem import Problem

# Elements of x that are drawn and held against float64: 64 rows of 16384, and more of shorter ones.
_ELEMENTS = 1 << 20
# Of the narrowest type so many rows are whole words, whatever the columns.
_WHOLE_WORDS = 4


def block_of(task: Task, device: Device) -> Problem:
    """The problem of the block of rows that a task's problem repeats: itself, where it is small, or where
    rows are so long that a device binds no block.
    """
    problem: Problem = task.problem
    enough = math.ceil(_ELEMENTS / max(1, problem.inner) / _WHOLE_WORDS) * _WHOLE_WORDS
    block = problem.with_batch(min(enough, problem.batch))
    batched = (tensor.data_bytes(block) for tensor in task.op.present(block) if tensor.batched)
    return block if max(batched) <= device.limits["max-storage-buffer-binding-size"] else problem


class RepeatedRows(ProblemBuffers):
    """Buffers of a problem whose rows are a block of rows again and again. `arrays` are the block's.

    The block is held against float64; all other rows have to be bit for bit like it, which the device sees
    for itself, and a sum over rows what the block's sums make. `block` is a board of the block alone.
    """

    def __init__(
        self,
        device: Device,
        task: Task,
        sets: int,
        roots: Sequence[Path] = (),
        calls: Calls = "one by one",
    ) -> None:
        block = block_of(task, device)
        arrays = make_inputs(task.op, block)
        super().__init__(device, task, arrays, roots, sets, calls)
        # Two sets, where there are several: then it shares a buffer between dispatches, as this one does, and
        # what is compiled for the one serves the other.
        self.block = ProblemBuffers(device, Task(task.op, block), arrays, roots, min(sets, 2), calls)
        self._rests: dict[tuple[str, int], ExpectedOutputs] = {}

    @property
    def times(self) -> int:
        """How often the block is there as a whole."""
        times: int = self.problem.batch // max(1, self.block.problem.batch)
        return times

    def inputs(self, others: Mapping[str, Array] | None) -> Inputs:
        """As a board's, the rows again and again."""
        batched = {name for name, tensor in self.op.named.items() if tensor.batched}
        return Inputs(self.device, self.arrays, self.sets, others, self.problem.batch, batched)

    def answers(
        self, variant: Variant, outputs: Mapping[str, tuple[Array, bool]], version: int = 0
    ) -> ExpectedOutputs:
        """The op's float64 answers for the block; sums over rows are those of all rows."""
        answers = self.block.answers(variant, outputs, version)
        if all(answer.abs_sum is None for answer in answers.values()):
            return answers
        rest = self._rest(variant, version)
        return {name: _sum_of_all(one, self.times, rest.get(name)) for name, one in answers.items()}

    def _rest(self, variant: Variant, version: int) -> ExpectedOutputs:
        """The answers for the rows behind the last whole block; none where there are no such rows."""
        most = max(1, self.block.problem.batch)
        count = self.problem.batch % most
        op = variant.kernel.op
        key = op.name, version
        if count and key not in self._rests:
            # In the second version, too, rows stand as in the first: what came from the end is the last.
            rows = (np.arange(count) - version) % most
            arrays = self.arrays_of(version)
            taken = {name: one[rows] if self.op.named[name].batched else one for name, one in arrays.items()}
            self._rests[key] = op.reference(taken, self.problem_of(variant).with_batch(count))
        return self._rests.get(key, {})

    def read(self, plan: Plan, version: int, at: int) -> dict[str, tuple[Array, bool]]:
        """As a board's, of the block's rows; raises RepeatedRowsDiffer where others are not like them."""
        if self.block.problem == self.problem:
            return super().read(plan, version, at)
        outputs = self.outputs(plan.shader.variant)
        return {
            name: self._block_of(outputs, name, version, at) if tensor.batched else outputs.read(name, at)
            for name, tensor in outputs.tensors.items()
        }

    def _block_of(self, outputs: Outputs, name: str, version: int, at: int) -> tuple[Array, bool]:
        tensor, buffer = outputs.tensors[name], outputs.buffers[name][at]
        problem = outputs.problem.with_batch(self.block.problem.batch)
        size, end = tensor.data_bytes(problem), tensor.data_bytes(outputs.problem)
        whole, queue = end // 4 * 4, self.device.handle.queue
        raw = np.frombuffer(queue.read_buffer(buffer, 0, size), np.uint8)
        behind = np.frombuffer(queue.read_buffer(buffer, whole, buffer.size - whole), np.uint8)
        # What is left of the last element's word is no one's.
        last, guard = behind[: end - whole], behind[4 if end > whole else 0 :]
        alike = sameness_of(self.device).repeats(buffer, size, whole)
        if not alike or last.tobytes() != raw[whole % size :][: last.size].tobytes():
            raise RepeatedRowsDiffer(f"{name}: rows that hold the same came out different")
        array = as_array(raw, tensor, problem)
        intact = bool(np.all(guard.view(np.uint32) == POISON))
        return np.roll(array, -1, axis=0) if version else array, intact

    def holds(self, plan: Plan, golden: Golden, dispatches: range) -> bool:
        """As a board's; rows that are unlike the block's do not hold."""
        try:
            return super().holds(plan, golden, dispatches)
        except RepeatedRowsDiffer:
            return False


def _sum_of_all(block: Expected, times: int, rest: Expected | None) -> Expected:
    """Of a sum over rows the answer for a block so many times and for the rest; what is no sum as it is."""
    if block.abs_sum is None:
        return block

    def of(name: str) -> Array:
        total: Array = getattr(block, name) * times
        return total if rest is None else total + getattr(rest, name)

    return Expected(of("value"), of("error_scale"), of("mean_error_scale"), of("abs_sum"))
