"""A board for large problems: rows repeat, so that all of them are held against float64 in little time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import wgpu

from webnorm.errors import WebnormError
from webnorm.gpu.buffers import POISON, Inputs, Outputs, as_array
from webnorm.gpu.device import Device
from webnorm.gpu.plan import Plan
from webnorm.gpu.programs import Prepared, Program
from webnorm.kernels.variants import Variant
from webnorm.lab.board import Board, Golden
from webnorm.lab.spoil import sameness_of
from webnorm.norms.ops import Op, Task, make_inputs
from webnorm.norms.problem import Array, Problem
from webnorm.norms.reference import Answer, Answers

# Elements of x that are drawn and held against float64: 64 rows of 16384, and more of shorter ones.
_ELEMENTS = 1 << 20
_INVOCATIONS = 256
# `first` is the word of the block that the bound rows begin at.
_COMPARE = f"""
struct Params {{ first: u32, period: u32 }}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> block: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read_write> different: atomic<u32>;

@compute @workgroup_size({_INVOCATIONS})
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
) {{
    var bits = 0u;
    for (var at = id.x; at < arrayLength(&rows); at += {_INVOCATIONS}u * workgroups.x) {{
        bits |= rows[at] ^ block[(params.first + at) % params.period];
    }}
    if (bits != 0u) {{ atomicStore(&different, 1u); }}
}}
"""


def repeats(op: Op, problem: Problem) -> int:
    """How often a block of rows fills a problem, so that the block is large enough, of whole words, and fills
    it.
    """
    per_row = [tensor for tensor in op.present(problem) if tensor.per_row]

    def fills(count: int) -> bool:
        block = replace(problem, rows=problem.rows // count)
        return problem.rows % count == 0 and all(tensor.data_bytes(block) % 4 == 0 for tensor in per_row)

    most = max(1, problem.rows * problem.cols // _ELEMENTS)
    return next((count for count in range(most, 1, -1) if fills(count)), 1)


def block_of(task: Task) -> Problem:
    """The problem of the block of rows that a problem repeats."""
    return replace(task.problem, rows=task.problem.rows // repeats(task.op, task.problem))


class RepeatedRows(Board):
    """Buffers of a problem whose rows are a block of rows `times` times. `arrays` are the block's.

    The block is held against float64; all other rows have to be bit for bit like it, which the device sees
    for itself, and a sum over rows as many times the block's. `block` is a board of the block alone.
    """

    def __init__(self, device: Device, task: Task, sets: int) -> None:
        block = block_of(task)
        arrays = make_inputs(task.op, block)
        super().__init__(device, task.problem, arrays, (), sets)
        self.times = repeats(task.op, task.problem)
        # Two sets, where there are several: then it shares a buffer between dispatches, as this one does, and
        # what is compiled for the one serves the other.
        self.block = Board(device, block, arrays, (), min(sets, 2))

    def inputs(self, others: Mapping[str, Array] | None) -> Inputs:
        """As a board's, the rows so many times."""
        return Inputs(self.device, self.arrays, self.sets, others, self.times)

    def answers(
        self, variant: Variant, outputs: Mapping[str, tuple[Array, bool]], version: int = 0
    ) -> Answers:
        """The op's float64 answers for the block; sums over rows are those of all rows."""
        answers = self.block.answers(variant, outputs, version)
        return {name: self._of_all(answer) for name, answer in answers.items()}

    def _of_all(self, answer: Answer) -> Answer:
        if answer.summed is None:
            return answer
        times = self.times
        return Answer(answer.value * times, answer.unit * times, answer.shaky * times, answer.summed * times)

    def read(self, plan: Plan, version: int, at: int) -> dict[str, tuple[Array, bool]]:
        """As a board's, of the block's rows; raises WebnormError where others are unlike them."""
        if self.times == 1:
            return super().read(plan, version, at)
        outputs = self.outputs(plan.shader.variant)
        return {
            name: self._block_of(outputs, name, version, at) if tensor.per_row else outputs.read(name, at)
            for name, tensor in outputs.tensors.items()
        }

    def _block_of(self, outputs: Outputs, name: str, version: int, at: int) -> tuple[Array, bool]:
        tensor, buffer = outputs.tensors[name], outputs.buffers[name][at]
        problem = replace(outputs.problem, rows=self.block.problem.rows)
        size = tensor.data_bytes(problem)
        end = self.times * size
        if not repetition_of(self.device).in_buffer(buffer, size, end):
            raise WebnormError(f"{name}: rows that hold the same came out different")
        queue = self.device.handle.queue
        array = as_array(np.frombuffer(queue.read_buffer(buffer, 0, size), np.uint8), tensor, problem)
        guard = np.frombuffer(queue.read_buffer(buffer, end, buffer.size - end), np.uint32)
        return np.roll(array, -1, axis=0) if version else array, bool(np.all(guard == POISON))

    def holds(self, plan: Plan, golden: Golden, dispatches: range) -> bool:
        """As a board's, against the buffers that were kept when the bits were found right."""
        outputs = self.outputs(plan.shader.variant)
        kept = self._kept[plan.shader.variant.kernel.op.name]
        last = dispatches[-self.sets :]
        for version in range(self.versions):
            members = [index % self.sets for index in last if self.version(plan, index) == version]
            sized = outputs.sized(members)
            tensors = zip(kept[version].values(), sized, strict=True)
            if members and not sameness_of(self.device).of(
                [([own, *buffers], size) for own, (buffers, size) in tensors]
            ):
                return False
        return True


class Repetition:
    """Tells on one device whether a buffer holds its first bytes again and again."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._program = Program(device.handle, _COMPARE, ("uniform", *["read-only-storage"] * 2, "storage"))
        self._different = device.create_buffer(4)

    def in_buffer(self, buffer: Any, period: int, size: int) -> bool:
        """Whether bytes 0 to `size` are those up to `period`, whole words, so many times."""
        handle, most = self._device.handle, self._device.limits["max-compute-workgroups-per-dimension"]
        handle.queue.write_buffer(self._different, 0, np.zeros(1, np.uint32))
        comparisons = []
        for begin, length in self._parts(size):
            words = np.array([begin // 4 % (period // 4), period // 4], np.uint32)
            params = handle.create_buffer_with_data(data=words, usage=wgpu.BufferUsage.UNIFORM)
            own = ((params, 0, 8), (buffer, 0, period), (buffer, begin, length), (self._different, 0, 4))
            count = min(math.ceil(length / 4 / _INVOCATIONS), most)
            comparisons.append(self._program.on(own, count))
        self._device.run_pass(Prepared.of(comparisons).encode)
        return not np.frombuffer(handle.queue.read_buffer(self._different), np.uint32).any()

    def _parts(self, size: int) -> Sequence[tuple[int, int]]:
        """Where bindings begin, and how long they are."""
        step = self._device.limits["min-storage-buffer-offset-alignment"]
        most = self._device.limits["max-storage-buffer-binding-size"] // step * step
        return [(begin, min(most, size - begin)) for begin in range(0, size, most)]


# Compiled once for all problems of a device.
repetition_of = lru_cache(maxsize=1)(Repetition)
