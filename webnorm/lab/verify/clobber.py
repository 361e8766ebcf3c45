"""Work on buffers on the device, where reading back gigabytes would take longer.

A `Clobberer` overwrites everything that a kernel could remember of an earlier dispatch: outputs, scratch and
workgroup memory. Otherwise a kernel could find its old answers and skip the computation, while real callers
pass other arrays each time. A `BufferComparer` compares buffers bit by bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from webnorm.gpu.backend import wgpu
from webnorm.gpu.buffers import Outputs
from webnorm.gpu.compute_programs import ComputeProgram, PreparedDispatches
from webnorm.gpu.device import Device
from webnorm.gpu.schedule import Plan
from webnorm.op.dtypes import DTYPES, Array

_INVOCATIONS = 256
# The count of noise numbers, which look like a norm's output. A prime keeps rows from repeating.
_NUMBERS = 4099
# No inputs use this seed: noise that starts like x could be taken for values that belong to x.
_SEED = (0x5701, 0x11)
# This many workgroups reach the memory of every core, however the device distributes them. A software adapter
# distributes them equally over its threads, one per processor.
_WORKGROUPS = 1024
_KINDS = ("read-only-storage", "storage")
_COMPARED = ("uniform", *["read-only-storage"] * 2, "storage")
# A buffer with the begin and the size in bytes of its bound part.
_Part = tuple[Any, int, int]
_FILL = f"""
@group(0) @binding(0) var<storage, read> numbers: array<u32>;
@group(0) @binding(1) var<storage, read_write> remembered: array<u32>;

@compute @workgroup_size({_INVOCATIONS})
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
) {{
    for (var at = id.x; at < arrayLength(&remembered); at += {_INVOCATIONS}u * workgroups.x) {{
        remembered[at] = numbers[at % arrayLength(&numbers)];
    }}
}}
"""


def _comparing(params: str, difference: str) -> str:
    """Return a shader that checks whether `others` differ from `first`.

    `difference` is the expression for the bits that differ in the word `at`.
    """
    return f"""
struct Params {{ {params} }}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> first: array<u32>;
@group(0) @binding(2) var<storage, read> others: array<u32>;
@group(0) @binding(3) var<storage, read_write> different: atomic<u32>;

@compute @workgroup_size({_INVOCATIONS})
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
) {{
    var bits = 0u;
    for (var at = id.x; at < arrayLength(&others); at += {_INVOCATIONS}u * workgroups.x) {{
        bits |= {difference};
    }}
    if (bits != 0u) {{ atomicStore(&different, 1u); }}
}}
"""


# `partial` is the index of the word, if any, in which only the bits of `mask` are data.
_ALIKE = _comparing(
    "partial: u32, mask: u32",
    "(first[at] ^ others[at]) & select(0xffffffffu, params.mask, at == params.partial)",
)
# `begin` is the index of the first word of the bound part.
_REPEATING = _comparing("begin: u32, period: u32", "others[at] ^ first[(params.begin + at) % params.period]")


def _memory_text(words: int) -> str:
    """Return a shader that fills workgroup memory with NaN; it reads it, so that compilers keep writes."""
    return f"""
@group(0) @binding(0) var<storage, read> numbers: array<u32>;
@group(0) @binding(1) var<storage, read_write> remembered: array<u32>;
var<workgroup> memory: array<u32, {words}>;

@compute @workgroup_size({_INVOCATIONS})
fn main(@builtin(local_invocation_index) place: u32) {{
    for (var at = place; at < {words}u; at += {_INVOCATIONS}u) {{ memory[at] = 0x7fc00000u | numbers[0]; }}
    workgroupBarrier();
    remembered[place % arrayLength(&remembered)] = memory[{words - 1}u - place];
}}
"""


class WritableBuffer(NamedTuple):
    """A buffer that a kernel may write, its bytes of data without guard, and the type of its elements."""

    buffer: Any
    data_bytes: int
    dtype: str


def output_buffers(outputs: Outputs, at: int) -> list[WritableBuffer]:
    """Return the buffers of a set of outputs."""
    return [
        WritableBuffer(buffers[at], tensor.data_bytes(outputs.problem), tensor.dtype(outputs.problem))
        for tensor, buffers in zip(outputs.tensors.values(), outputs.buffers.values(), strict=True)
    ]


def scratch_buffers(plan: Plan, shared: Iterable[Any] = ()) -> list[WritableBuffer]:
    """Return the buffers that only this plan writes: its scratch, and buffers that its dispatches share."""
    return [WritableBuffer(buffer, buffer.size, "float32") for buffer in (*plan.scratch.values(), *shared)]


class Clobberer:
    """Overwrites buffers and workgroup memory of one device with noise."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._fill = ComputeProgram(device.handle, _FILL, _KINDS)
        self._numbers: dict[str, Any] = {}
        self._workgroups = os.cpu_count() or 1 if device.traits.software else _WORKGROUPS
        zeros = device.handle.create_buffer_with_data(
            data=np.zeros(4, np.uint32), usage=wgpu.BufferUsage.STORAGE
        )
        kept = device.create_buffer(4 * _INVOCATIONS)
        memory = ComputeProgram(device.handle, _memory_text(device.traits.workgroup_storage // 4), _KINDS)
        self._memory = memory.on(((zeros, 0, zeros.size), (kept, 0, kept.size)), self._workgroups)

    def over(self, remembered: Sequence[WritableBuffer], memory: bool = True) -> PreparedDispatches:
        """Return dispatches that overwrite these buffers, except guards, and then all workgroup memory."""
        fills = []
        for buffer, data_bytes, dtype in remembered:
            numbers = self._numbers_as(dtype)
            for begin, size in _bound(self._device, math.ceil(data_bytes / 4) * 4):
                count = min(math.ceil(size / 4 / _INVOCATIONS), 4 * self._workgroups)
                fills.append(self._fill.on(((numbers, 0, numbers.size), (buffer, begin, size)), count))
        return PreparedDispatches.of([*fills, *([self._memory] if memory else [])])

    def _numbers_as(self, dtype: str) -> Any:
        """Return a buffer of noise of a type."""
        if dtype not in self._numbers:
            numbers: Array = np.random.default_rng(_SEED).standard_normal(_NUMBERS * 4)
            if dtype == "int8":
                numbers = np.rint(40 * numbers).clip(-127, 127)
            data = numbers.astype(DTYPES[dtype]).view(np.uint8)[: 4 * _NUMBERS]
            usage = wgpu.BufferUsage.STORAGE
            self._numbers[dtype] = self._device.handle.create_buffer_with_data(data=data, usage=usage)
        return self._numbers[dtype]


@dataclass(frozen=True)
class ClobberedDispatches:
    """A plan's dispatches with others between them that overwrite their results.

    Without a plan only the other dispatches run, to be timed separately. `noise` overwrites everything before
    dispatch number `first` and every `every` dispatches after it. `each` runs before the other dispatches.
    """

    noise: PreparedDispatches
    each: PreparedDispatches | None
    every: int
    plan: Any = None
    first: int = 0

    def encode(self, compute: Any, index: int = 0) -> None:
        """Encode the dispatches with this number into a compute pass."""
        if (index - self.first) % self.every == 0:
            self.noise.encode(compute)
        elif self.each is not None:
            self.each.encode(compute)
        if self.plan is not None:
            self.plan.encode(compute, index)


class BufferComparer:
    """Compares buffers of one device with each other, word by word."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._alike = ComputeProgram(device.handle, _ALIKE, _COMPARED)
        self._different = device.create_buffer(4)

    @cached_property
    def _repeating(self) -> ComputeProgram:
        return ComputeProgram(self._device.handle, _REPEATING, _COMPARED)

    def of(self, tensors: Sequence[tuple[Sequence[Any], int]]) -> bool:
        """Return true if each tensor's buffers, which have equal sizes, are equal.

        The int is a tensor's bytes of data. The rest of the data's last word is ignored; the words after it
        are compared.
        """
        return self._finds_nothing(self.between(tensors))

    def between(self, tensors: Sequence[tuple[Sequence[Any], int]]) -> PreparedDispatches:
        """Return the dispatches of the comparison in `of`, for use between other dispatches.

        Their result is combined with the results of all comparisons since `forget`.
        """
        comparisons = []
        for (first, *others), data_bytes in tensors:
            # If the data are whole words, the index is beyond the end.
            partial = data_bytes // 4 if data_bytes % 4 else 2**32 - 1
            mask = 2 ** (8 * (data_bytes % 4)) - 1
            for begin, size in _bound(self._device, first.size):
                params = self._params((partial - begin // 4) % 2**32, mask)
                for other in others:
                    part = (other, begin, size)
                    comparisons.append(self._compared(self._alike, params, (first, begin, size), part))
        return PreparedDispatches.of(comparisons)

    def repeats(self, buffer: Any, period: int, size: int) -> bool:
        """Return true if bytes 0 to `size` repeat the first `period` bytes, which are whole words."""
        block = (buffer, 0, period)
        comparisons = []
        for begin, length in _bound(self._device, size):
            params = self._params(begin // 4 % (period // 4), period // 4)
            comparisons.append(self._compared(self._repeating, params, block, (buffer, begin, length)))
        return self._finds_nothing(PreparedDispatches.of(comparisons))

    def _finds_nothing(self, comparison: PreparedDispatches) -> bool:
        self.forget()
        self._device.run_pass(comparison.encode)
        return not self.found_differences()

    def _params(self, *words: int) -> Any:
        usage = wgpu.BufferUsage.UNIFORM
        return self._device.handle.create_buffer_with_data(data=np.array(words, np.uint32), usage=usage)

    def _compared(
        self, program: ComputeProgram, params: Any, first: _Part, others: _Part
    ) -> PreparedDispatches:
        most = self._device.limits["max-compute-workgroups-per-dimension"]
        count = min(math.ceil(others[2] / 4 / _INVOCATIONS), most)
        return program.on(((params, 0, 8), first, others, (self._different, 0, 4)), count)

    def forget(self) -> None:
        """Reset the result of comparisons."""
        self._device.handle.queue.write_buffer(self._different, 0, np.zeros(1, np.uint32))

    def found_differences(self) -> bool:
        """Return true if any comparison since `forget` found a difference."""
        words = np.frombuffer(self._device.handle.queue.read_buffer(self._different), np.uint32)
        return bool(words.any())


def _bound(device: Device, size: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and the size of the bindings that cover a buffer of `size` bytes."""
    step = device.limits["min-storage-buffer-offset-alignment"]
    most = device.limits["max-storage-buffer-binding-size"] // step * step
    for begin in range(0, size, most):
        yield begin, min(most, size - begin)


# Compiled once for all boards of a device, since a corpus creates a hundred of them.
clobberer_of, comparer_of = lru_cache(maxsize=1)(Clobberer), lru_cache(maxsize=1)(BufferComparer)
