"""Guarded buffers for a problem's arrays on a device, and checks of the memory they need."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from webnorm.errors import WebnormError, sizes_in_bytes
from webnorm.gpu.device import Device, machine_memory
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Task, Tensor
from webnorm.op.problem import Problem

# A binding ends with a whole vec4, because the last load of the last row reads one.
ACCESS_BYTES = 16
# Words after every tensor, inside the bound range. They reveal a write past the end, and a read past the end
# of an input returns NaN. 64 words are one vec4 for each of 16 invocations.
GUARD_WORDS = 64
GUARD_BYTES = 4 * GUARD_WORDS
# Quiet NaNs with a payload. Outputs and their guards contain POISON before a run. The guards of inputs
# contain other bits, because arithmetic propagates a NaN's bits: a kernel that ran past the ends of both
# would write POISON over POISON.
POISON = np.uint32(0x7FC0BEEF)
INPUT_GUARD = np.uint32(0x7FC0F00D)
_CHUNK_BYTES = 1 << 24


def buffer_bytes(data_bytes: int) -> int:
    """Return the bytes of a tensor's buffer with its guard, a whole number of vec4."""
    return whole_accesses(data_bytes + GUARD_BYTES)


def check_memory(task: Task, device: Device, sets: int = 1) -> None:
    """Raise WebnormError if the buffers do not fit the device, before anything is allocated."""
    limit, problem = device.limits["max-buffer-size"], task.problem
    total = 0
    for tensor in task.op.present(problem):
        size = buffer_bytes(tensor.data_bytes(problem))
        total += size * sets
        if size > limit:
            needed, largest = sizes_in_bytes(size, limit)
            raise WebnormError(
                f"{problem}: {tensor.name} takes {needed}; this device's largest buffer is {largest}"
            )
    _check_room(problem, "the buffers", total, device.memory)


def check_reference(problem: Problem) -> None:
    """Raise WebnormError if the float64 reference does not fit this machine, before anything is drawn."""
    size = problem.elements * _REFERENCE_BYTES
    _check_room(problem, "inputs and the float64 reference", size, machine_memory())


def _check_room(problem: Problem, what: str, size: int, memory: int | None) -> None:
    if memory is not None and size > memory:
        needed, installed = sizes_in_bytes(size, memory)
        raise WebnormError(f"{problem}: {what} take {needed}; this machine has {installed} of memory")


# Bytes per element: x in float64 and in its storage type, a reference with its two sizes, and two copies of
# the output.
_REFERENCE_BYTES = 40


class Inputs:
    """The input arrays of a problem on a device, in one or more sets of buffers.

    With several sets, dispatches use them in turn, so that timings measure the GPU's memory and not its
    cache. See `webnorm.Plan` for an example.

    Parameters
    ----------
    device : Device
        The device.
    arrays : mapping of str to numpy.ndarray
        Arrays by the names of the op's tensors, such as those from `webnorm.make_inputs`.
    sets : int, default 1
        The number of sets. With `others`, an odd number is raised by one.
    others : mapping of str to numpy.ndarray, optional
        Arrays of the same shapes, for every second set.
    batch : int, optional
        The number of elements of the batch. Batched arrays are repeated until they have so many elements.
        Their size in bytes must then be a multiple of 4.
    batched : collection of str, optional
        The names of the batched arrays.

    Attributes
    ----------
    device : Device
        The device.
    sets : int
        The number of sets.
    buffers : dict of str to list
        The wgpu buffers by tensor, one per set.

    Raises
    ------
    WebnormError
        The device has no room for a buffer.
    """

    def __init__(
        self,
        device: Device,
        arrays: Mapping[str, Array],
        sets: int = 1,
        others: Mapping[str, Array] | None = None,
        batch: int | None = None,
        batched: Collection[str] = (),
    ) -> None:
        self.device = device
        self.sets = sets if others is None else sets + sets % 2
        self.buffers: dict[str, list[Any]] = {}
        for name, array in arrays.items():
            size = array.nbytes
            if batch is not None and name in batched:
                size = size // max(1, len(array)) * batch
            given = [array] if others is None else [array, others[name]]
            firsts = [_upload(device, one, size) for one in given]
            copies = (self._copy_of(firsts[at % len(firsts)]) for at in range(len(firsts), self.sets))
            self.buffers[name] = [*firsts, *copies]

    def _copy_of(self, buffer: Any) -> Any:
        copy = self.device.create_buffer(buffer.size)
        encoder = self.device.handle.create_command_encoder()
        encoder.copy_buffer_to_buffer(buffer, 0, copy, 0, buffer.size)
        self.device.handle.queue.submit([encoder.finish()])
        return copy


class Outputs:
    """The buffers that passes write, one per tensor and set, shared by all plans of an op and problem.

    Every buffer starts with NaNs, and has guard words after its elements. See `webnorm.Plan` for an example.

    Parameters
    ----------
    device : Device
        The device.
    problem : Problem
        The problem.
    tensors : iterable of Tensor
        The outputs: `kernel.op.outputs(problem)`.
    sets : int, default 1
        The number of sets of buffers.
    shared : mapping of str to list, optional
        Output buffers of another op by name. They are used if their size is the same.

    Attributes
    ----------
    device : Device
        The device.
    problem : Problem
        The problem.
    sets : int
        The number of sets.
    tensors : dict of str to Tensor
        The outputs by name.
    buffers : dict of str to list
        The wgpu buffers by output, one per set.

    Raises
    ------
    WebnormError
        The device has no room for a buffer.
    """

    def __init__(
        self,
        device: Device,
        problem: Problem,
        tensors: Iterable[Tensor],
        sets: int = 1,
        shared: Mapping[str, list[Any]] | None = None,
    ) -> None:
        self.device, self.problem, self.sets = device, problem, sets
        self.tensors = {tensor.name: tensor for tensor in tensors}
        self.buffers: dict[str, list[Any]] = {}
        for name, tensor in self.tensors.items():
            size = buffer_bytes(tensor.data_bytes(problem))
            found = (shared or {}).get(name, [])
            if found and found[0].size == size:
                self.buffers[name] = found
            else:
                self.buffers[name] = [device.create_buffer(size) for _ in range(sets)]
        largest = max(buffers[0].size for buffers in self.buffers.values())
        self._pattern = device.create_buffer(min(largest, _CHUNK_BYTES))
        fill(device, self._pattern, 0, POISON)
        self.poison()

    def poison(self) -> None:
        """Fill every output and its guard with NaNs, so that missing writes are found."""
        encoder = self.device.handle.create_command_encoder()
        for buffers in self.buffers.values():
            for buffer in buffers:
                for at in range(0, buffer.size, self._pattern.size):
                    size = min(self._pattern.size, buffer.size - at)
                    encoder.copy_buffer_to_buffer(self._pattern, 0, buffer, at, size)
        self.device.handle.queue.submit([encoder.finish()])

    def read(self, name: str, index: int = 0) -> tuple[Array, bool]:
        """Read an output of one set.

        Parameters
        ----------
        name : str
            The name of the output.
        index : int, default 0
            The number of the set.

        Returns
        -------
        array : numpy.ndarray
            A copy of the output.
        intact : bool
            True if the guard words after the output are unchanged. Bytes between the last element and the
            next multiple of 4 are not checked.
        """
        tensor = self.tensors[name]
        raw = np.frombuffer(self.device.handle.queue.read_buffer(self.buffers[name][index]), np.uint8)
        guard = raw[math.ceil(tensor.data_bytes(self.problem) / 4) * 4 :]
        return as_array(raw, tensor, self.problem), bool(np.all(guard.view(np.uint32) == POISON))

    def sized(self, sets: Sequence[int]) -> list[tuple[list[Any], int]]:
        """Return the buffers of each output for some sets, and its size in bytes without the guard."""
        return [
            ([self.buffers[name][at] for at in sets], tensor.data_bytes(self.problem))
            for name, tensor in self.tensors.items()
        ]

    def read_all(self, index: int = 0) -> dict[str, tuple[Array, bool]]:
        """Read every output of one set: the results of `read` by name."""
        return {name: self.read(name, index) for name in self.tensors}


def as_array(raw: Array, tensor: Tensor, problem: Problem) -> Array:
    """Return the bytes of a tensor's buffer as an array of its shape and dtype."""
    data = raw[: tensor.data_bytes(problem)].view(DTYPES[tensor.dtype(problem)])
    return data.reshape(tensor.shape_in(problem))


def _upload(device: Device, array: Array, size: int) -> Any:
    """Create a buffer with `size` bytes of data, an array repeated as needed, and a guard after it."""
    buffer = device.create_buffer(buffer_bytes(size))
    if size == array.nbytes:
        write(device, buffer, array)
    else:
        # Copies inside the device's memory do not cross a bus.
        once = device.create_buffer(array.nbytes)
        write(device, once, array)
        encoder = device.handle.create_command_encoder()
        for begin in range(0, size, array.nbytes):
            # WebGPU copies whole words.
            length = min(array.nbytes, math.ceil((size - begin) / 4) * 4)
            encoder.copy_buffer_to_buffer(once, 0, buffer, begin, length)
        device.handle.queue.submit([encoder.finish()])
    fill(device, buffer, math.ceil(size / 4) * 4, INPUT_GUARD)
    return buffer


def write(device: Device, buffer: Any, array: Array) -> None:
    """Write an array to the beginning of a buffer."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    tail = data.size % 4
    for begin in range(0, data.size - tail, _CHUNK_BYTES):
        device.handle.queue.write_buffer(
            buffer, begin, data[begin : min(begin + _CHUNK_BYTES, data.size - tail)]
        )
    if tail:
        # WebGPU writes whole words.
        word = np.zeros(4, np.uint8)
        word[:tail] = data[-tail:]
        device.handle.queue.write_buffer(buffer, data.size - tail, word)


def fill(device: Device, buffer: Any, begin: int, word: np.uint32) -> None:
    """Fill a buffer from `begin` to its end with a word."""
    pattern = np.full(min(buffer.size - begin, _CHUNK_BYTES) // 4, word, np.uint32)
    for at in range(begin, buffer.size, _CHUNK_BYTES):
        device.handle.queue.write_buffer(buffer, at, pattern[: (buffer.size - at) // 4])


def whole_accesses(size: int) -> int:
    """Round bytes up to whole vec4."""
    return math.ceil(size / ACCESS_BYTES) * ACCESS_BYTES
