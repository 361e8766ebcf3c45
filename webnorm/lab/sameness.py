"""Whether buffers hold the same bits, found out on the device: reading gigabytes back takes longer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import wgpu

from webnorm.gpu.device import Device
from webnorm.gpu.programs import Prepared, Program

_INVOCATIONS = 256
# `partial` is the word, if any, of which the bits of `mask` alone are data.
_TEXT = f"""
struct Params {{ partial: u32, mask: u32 }}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> first: array<u32>;
@group(0) @binding(2) var<storage, read> other: array<u32>;
@group(0) @binding(3) var<storage, read_write> different: atomic<u32>;

@compute @workgroup_size({_INVOCATIONS})
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
) {{
    var bits = 0u;
    for (var at = id.x; at < arrayLength(&first); at += {_INVOCATIONS}u * workgroups.x) {{
        bits |= (first[at] ^ other[at]) & select(0xffffffffu, params.mask, at == params.partial);
    }}
    if (bits != 0u) {{ atomicStore(&different, 1u); }}
}}
"""
_KINDS = ("uniform", "read-only-storage", "read-only-storage", "storage")


class Sameness:
    """Compares buffers of one device with each other, word by word."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._program = Program(device, _TEXT, _KINDS)
        self._different = device.create_buffer(4)

    def of(self, tensors: Sequence[tuple[Sequence[Any], int]]) -> bool:
        """Whether each tensor's buffers, of equal size, are alike. The int is its bytes of data: what is left
        of the word that they end in does not count, whatever follows does.
        """
        comparison = self.between(tensors)
        self.forget()
        self._device.run_pass(comparison.encode)
        return not self.found_differences()

    def between(self, tensors: Sequence[tuple[Sequence[Any], int]]) -> Prepared:
        """The comparison that `of` makes, to be encoded as often as need be between other dispatches; what it
        finds is added to what others found.
        """
        return Prepared.of(
            self._compare(params, buffers[0], other, begin, size)
            for buffers, data_bytes in tensors
            for begin, size, params in self._ranges(buffers[0].size, data_bytes)
            for other in buffers[1:]
        )

    def forget(self) -> None:
        """Let comparisons begin anew."""
        self._device.handle.queue.write_buffer(self._different, 0, np.zeros(1, np.uint32))

    def found_differences(self) -> bool:
        """Whether any comparison that was submitted since `forget` found buffers that differ."""
        words = np.frombuffer(self._device.handle.queue.read_buffer(self._different), np.uint32)
        return bool(words.any())

    def _ranges(self, whole: int, data_bytes: int) -> Iterator[tuple[int, int, Any]]:
        """Where bindings of a buffer begin, how long they are, and their uniform."""
        limits = self._device.limits
        step = limits["min-storage-buffer-offset-alignment"]
        most = limits["max-storage-buffer-binding-size"] // step * step
        # Past the end where the data is whole words.
        partial = data_bytes // 4 if data_bytes % 4 else 2**32 - 1
        mask = 2 ** (8 * (data_bytes % 4)) - 1
        for begin in range(0, whole, most):
            words = np.array([(partial - begin // 4) % 2**32, mask], np.uint32)
            usage = wgpu.BufferUsage.UNIFORM
            params = self._device.handle.create_buffer_with_data(data=words, usage=usage)
            yield begin, min(most, whole - begin), params

    def _compare(self, params: Any, first: Any, other: Any, begin: int, size: int) -> Prepared:
        most = self._device.limits["max-compute-workgroups-per-dimension"]
        bound = ((params, 0, 8), (first, begin, size), (other, begin, size), (self._different, 0, 4))
        return self._program.on(bound, min(math.ceil(size / 4 / _INVOCATIONS), most))
