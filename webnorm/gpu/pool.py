"""A pool of buffers for reuse, and reading buffers back through a staging buffer."""

from __future__ import annotations

import signal
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, NoReturn

import numpy as np

from webnorm import signals
from webnorm.errors import WebnormError, one_line, sizes_in_bytes
from webnorm.gpu.backend import wgpu
from webnorm.gpu.buffers import buffer_bytes
from webnorm.gpu.device import STORAGE_USAGE, Device
from webnorm.gpu.gate import Gate, interrupt_later
from webnorm.op.dtypes import Array

# The most buffers that wait in the queue of returned ones.
_MOST_RETURNED = 64
# Sizes are rounded up by an eighth at most, so that nearly equal sizes share buffers.
_STEPS_PER_OCTAVE = 8
# Bytes per read. Copying them takes milliseconds and the wait only a fraction of one; a large array is never
# in memory twice. Every WebGPU device supports buffers of this size.
_STAGED_BYTES = 1 << 26
# The usage of the staging buffers.
STAGING_USAGE = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
# A buffer, and the shape and dtype of the array at its beginning.
Source = tuple[Any, tuple[int, ...], np.dtype[Any]]


class _Lent(weakref.ref[Any]):
    """A weak reference to the owner of a buffer, whose callback runs when the owner is gone."""

    __slots__ = ("buffer", "gate", "pool")

    buffer: Any
    gate: Gate
    pool: weakref.ref[BufferPool]


class BufferPool:
    """Buffers for reuse, up to a total of bytes; the least recently used sizes are dropped first.

    WebGPU clears new buffers, which costs a pass over memory. A dropped buffer is destroyed, because bind
    groups that refer to it would keep its memory. All methods run inside the device's gate, except the
    callback for a lost owner.
    """

    def __init__(self, most_bytes: int, usage: int = STORAGE_USAGE) -> None:
        self.most_bytes, self.usage = most_bytes, usage
        # Bytes of the free buffers, and of the lent ones including the queue of returned buffers.
        self.bytes = self.lent_bytes = 0
        # For each size a heap by wgpu's uid. `take` returns the oldest buffer, so that repeated calls get the
        # same buffers and can reuse their bind groups.
        self._free: OrderedDict[int, list[tuple[int, Any]]] = OrderedDict()
        self._lent: dict[int, tuple[_Lent, _Lent]] = {}
        self._returned: deque[_Lent] = deque()
        self._itself = weakref.ref(self)

    def take(self, device: Device, data_bytes: int) -> Any:
        """Return a buffer for `data_bytes` bytes and a guard; its content is undefined."""
        limits = device.limits
        size = _pooled_size(data_bytes, limits["max-storage-buffer-binding-size"], limits["max-buffer-size"])
        if self._returned:
            self.sort_in()
        free = self._free.get(size)
        if free:
            self._free.move_to_end(size)
            self.bytes -= size
            return heappop(free)[1]
        found = device.create_buffer(size, self.usage)
        # wgpu aborts the process if submitted commands refer to a destroyed buffer.
        found.destroy = _refuse_to_destroy
        return found

    def lend(self, holder: object, gate: Gate, buffer: Any) -> None:
        """Return a buffer to the pool when its owner is gone; the device may still be using it.

        The garbage collector may call back at any moment, even in the middle of `take`. It calls the newest
        reference first, whose callback is not Python code and cannot be interrupted. (`__del__` would not
        work: in a garbage cycle, wgpu would release the buffer as well.)
        """
        later, first = _Lent(holder, _cleanup_callback()), _Lent(holder, self._returned.append)
        later.gate, later.pool, first.buffer = gate, self._itself, buffer
        self._lent[buffer.uid] = later, first
        self.lent_bytes += buffer.size

    def give_back(self, buffer: Any) -> None:
        """Return a buffer to the pool. The device may still be using it, because it works in order."""
        size = buffer.size
        if size > self.most_bytes:
            _destroy(buffer)
            return
        heappush(self._free.setdefault(size, []), (buffer.uid, buffer))
        self.bytes += size
        while self.bytes > self.most_bytes:
            size, free = next(iter(self._free.items()))
            if free:
                _destroy(free.pop()[1])
                self.bytes -= size
            else:
                del self._free[size]

    def overfull(self) -> bool:
        """Return whether free or returned buffers have to be dropped."""
        if self.bytes + self.lent_bytes <= self.most_bytes and len(self._returned) <= _MOST_RETURNED:
            return False  # a quick answer, because the end of every array asks
        returned = tuple(self._returned)
        most = self.most_bytes - self.bytes
        return len(returned) > _MOST_RETURNED or sum(lent.buffer.size for lent in returned) > most

    def sort_in(self) -> None:
        """Move the queue of returned buffers into the pool."""
        while self._returned:
            buffer = self._returned.popleft().buffer
            del self._lent[buffer.uid]
            self.lent_bytes -= buffer.size
            self.give_back(buffer)


def _refuse_to_destroy() -> NoReturn:
    raise WebnormError("webnorm owns this buffer; delete its array to free it")


def _destroy(buffer: Any) -> None:
    type(buffer).destroy(buffer)


def _cleanup_callback() -> Callable[[_Lent], None]:
    """Return a callback for the garbage collector that frees memory at once if the pool is too full.

    The callback resumes a generator inside a `try`. In a function, a signal could arrive before the first
    line, and Python would drop the exception of its handler.
    """
    steps = _cleanup_steps()
    next(steps)
    return steps.send


def _cleanup_steps() -> Generator[None, _Lent]:
    try:
        lent = yield
        pool = lent.pool()
        if pool is not None and pool.overfull() and not sys.is_finalizing():
            lent.gate.run_if_idle(pool.sort_in)
    except GeneratorExit:
        raise
    except BaseException as error:
        number = signals.number_of(error)
        if number is None and not isinstance(error, KeyboardInterrupt):
            raise
        interrupt_later(number or signal.SIGINT)
    yield


@lru_cache(maxsize=1024)
def _pooled_size(data_bytes: int, most_bound: int, most: int) -> int:
    """Round up to a size class of the pool; a size whose class exceeds a limit is not rounded."""
    size = buffer_bytes(data_bytes)
    step = max(16, 1 << max(0, size.bit_length() - 1 - (_STEPS_PER_OCTAVE - 1).bit_length()))
    rounded = -(-size // step) * step
    if rounded <= min(most_bound, most):
        return rounded
    if size > most:
        needed, largest = sizes_in_bytes(size, most)
        raise WebnormError(f"an array takes {needed}; this device's largest buffer is {largest}")
    return size


def read_buffers(
    device: Device, pool: BufferPool, sources: Sequence[Source], encoder: Any = None
) -> list[Array]:
    """Read the arrays at the beginning of buffers into new NumPy arrays, through a staging buffer of `pool`.

    Small arrays need one submission and one wait. `encoder` contains earlier commands, which are submitted
    with the first copies. Raises WebnormError if the arrays do not fit memory.
    """
    try:
        found = [np.empty(shape, dtype) for _, shape, dtype in sources]
    except MemoryError as error:
        raise WebnormError(f"not enough memory for the arrays to read: {one_line(str(error))}") from error
    pieces = [
        _Piece(source[0], begin, array.reshape(-1).view(np.uint8)[begin : begin + _STAGED_BYTES])
        for array, source in zip(found, sources, strict=True)
        for begin in range(0, array.nbytes, _STAGED_BYTES)
    ]
    if not pieces:
        return found
    size = min(_STAGED_BYTES, sum(piece.room for piece in pieces))
    with device.gate:
        handle = device.handle
        staging = pool.take(device, size)
        for batch in _batches(pieces):
            encoder = encoder or handle.create_command_encoder()
            for at, piece in batch:
                encoder.copy_buffer_to_buffer(piece.buffer, piece.begin, staging, at, piece.copied)
            handle.queue.submit([encoder.finish()])
            encoder = None
            # As in wgpu-py's read_buffer: "READ" would submit once more.
            staging.map_sync("READ_NOSYNC", 0, size)
            mapped = np.frombuffer(staging.read_mapped(0, size, copy=False), np.uint8)
            for at, piece in batch:
                piece.target[:] = mapped[at : at + piece.target.size]
            del mapped
            staging.unmap()
        # Not in a `finally`: after an error the buffer may still be mapped, and the next call could not use
        # it.
        pool.give_back(staging)
    return found


@dataclass(frozen=True)
class _Piece:
    """A range of a buffer from `begin` on, and the array that receives it."""

    buffer: Any
    begin: int
    target: Array

    @property
    def copied(self) -> int:
        """Bytes to copy: whole words."""
        return -(-self.target.size // 4) * 4

    @property
    def room(self) -> int:
        """Bytes of the piece in the staging buffer, with alignment."""
        return -(-self.target.size // 8) * 8


def _batches(pieces: Sequence[_Piece]) -> Iterator[list[tuple[int, _Piece]]]:
    """Yield groups of pieces that fit the staging buffer together, each piece with its offset there."""
    batch: list[tuple[int, _Piece]] = []
    at = 0
    for piece in pieces:
        if at + piece.room > _STAGED_BYTES:
            yield batch
            batch, at = [], 0
        batch.append((at, piece))
        at += piece.room
    if batch:
        yield batch
