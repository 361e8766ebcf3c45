"""Writing over what a kernel could remember of the dispatch before: outputs, scratch, workgroup memory.

A kernel that finds its answers where it left them can do without computing them; whoever calls it has other
arrays each time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import wgpu

from webnorm.gpu.buffers import Outputs
from webnorm.gpu.device import Device
from webnorm.gpu.plan import Plan
from webnorm.gpu.programs import Prepared, Program
from webnorm.norms.problem import DTYPES, Array

_INVOCATIONS = 256
# Numbers such as a norm gives, of which there are enough not to look like one row.
_NUMBERS = 4099
# No one's who draws inputs: noise that begins as x does would be taken for what belongs to x.
_SEED = (0x5701, 0x11)
# So many workgroups fill the memory of every core, whichever the device gives them. A software adapter hands
# them to its threads in equal shares, of which it has one for each processor.
_WORKGROUPS = 1024
_KINDS = ("read-only-storage", "storage")
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


def _memory_text(words: int) -> str:
    """Fills workgroup memory with NaN. It is read again, so that no compiler leaves the writes out."""
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


class Remembered(NamedTuple):
    """A buffer that a kernel may write, its bytes of data without a guard, and the type of its elements."""

    buffer: Any
    data_bytes: int
    dtype: str


def of_outputs(outputs: Outputs, at: int) -> list[Remembered]:
    """A set of outputs."""
    return [
        Remembered(buffers[at], tensor.data_bytes(outputs.problem), tensor.dtype(outputs.problem))
        for tensor, buffers in zip(outputs.tensors.values(), outputs.buffers.values(), strict=True)
    ]


def of_scratch(plan: Plan, shared: Iterable[Any] = ()) -> list[Remembered]:
    """What no other plan writes: its scratch, and the buffers that its dispatches have in common."""
    return [Remembered(buffer, buffer.size, "float32") for buffer in (*plan.scratch.values(), *shared)]


class Spoiler:
    """Puts other numbers into buffers and workgroup memory of one device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._fill = Program(device, _FILL, _KINDS)
        self._numbers: dict[str, Any] = {}
        self._workgroups = os.cpu_count() or 1 if device.traits.software else _WORKGROUPS
        zeros = device.handle.create_buffer_with_data(
            data=np.zeros(4, np.uint32), usage=wgpu.BufferUsage.STORAGE
        )
        kept = device.create_buffer(4 * _INVOCATIONS)
        memory = Program(device, _memory_text(device.traits.workgroup_storage // 4), _KINDS)
        self._memory = memory.on(((zeros, 0, zeros.size), (kept, 0, kept.size)), self._workgroups)

    def over(self, remembered: Sequence[Remembered], memory: bool = True) -> Prepared:
        """What spoils these buffers, guards excepted, and then, if asked, all workgroup memory."""
        most = self._device.limits["max-storage-buffer-binding-size"]
        step = self._device.limits["min-storage-buffer-offset-alignment"]
        most = most // step * step
        found = []
        for buffer, data_bytes, dtype in remembered:
            numbers = self._numbers_as(dtype)
            size = math.ceil(data_bytes / 4) * 4
            for begin in range(0, size, most):
                own = min(most, size - begin)
                count = min(math.ceil(own / 4 / _INVOCATIONS), 4 * self._workgroups)
                found.append(self._fill.on(((numbers, 0, numbers.size), (buffer, begin, own)), count))
        return Prepared.of([*found, *([self._memory] if memory else [])])

    def _numbers_as(self, dtype: str) -> Any:
        """A buffer of numbers of a type."""
        if dtype not in self._numbers:
            numbers: Array = np.random.default_rng(_SEED).standard_normal(_NUMBERS * 4)
            if dtype == "int8":
                numbers = np.rint(40 * numbers).clip(-127, 127)
            data = numbers.astype(DTYPES[dtype]).view(np.uint8)[: 4 * _NUMBERS]
            usage = wgpu.BufferUsage.STORAGE
            self._numbers[dtype] = self._device.handle.create_buffer_with_data(data=data, usage=usage)
        return self._numbers[dtype]


class Spoiled:
    """Dispatches of a plan among others that spoil what they leave; without a plan the others alone, to be
    timed beside.

    `noise` goes over everything before the dispatch of number `first` and then before every so many, `each`
    comes before the ones between.
    """

    def __init__(
        self, noise: Prepared, each: Prepared | None, every: int, plan: Any = None, first: int = 0
    ) -> None:
        self._noise, self._each, self._every, self._plan, self._first = noise, each, every, plan, first

    def encode(self, compute: Any, index: int = 0) -> None:
        """Put the dispatches of this number into a compute pass."""
        if (index - self._first) % self._every == 0:
            self._noise.encode(compute)
        elif self._each is not None:
            self._each.encode(compute)
        if self._plan is not None:
            self._plan.encode(compute, index)


# Compiled once for all boards of a device: a corpus has a hundred.
spoiler_of = lru_cache(maxsize=1)(Spoiler)
