"""Buffers that were used and are free, kept up to a bound; reading buffers back by way of such a one."""

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
import wgpu

from webnorm import signals
from webnorm.errors import WebnormError, one_line
from webnorm.gpu.buffers import buffer_bytes
from webnorm.gpu.device import STORAGE_USAGE, Device
from webnorm.gpu.gate import Gate, interrupt_later
from webnorm.op.dtypes import Array

# Buffers that wait to be sorted in.
_MOST_RETURNED = 64
# A buffer is up to an eighth larger than what it was taken for, so that sizes that are nearly the same
# share buffers.
_STEPS_PER_OCTAVE = 8
# What is read at a time: copying it takes milliseconds, the wait a fraction of one, and no large array lies
# in memory twice. Any WebGPU device has a buffer of that size.
_STAGED_BYTES = 1 << 26
# What a pool of buffers to read through is made with.
STAGING_USAGE = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
# A buffer, and the shape and dtype of the array at its beginning.
Source = tuple[Any, tuple[int, ...], np.dtype[Any]]


class _Lent(weakref.ref[Any]):
    """Tells when the holder of a buffer is gone."""

    __slots__ = ("buffer", "gate", "pool")

    buffer: Any
    gate: Gate
    pool: weakref.ref[BufferPool]


class BufferPool:
    """Buffers to use again, up to a total of bytes; those of the size used longest ago go first.

    New buffers are cleared by WebGPU before a shader sees them, which costs a pass over memory. A buffer that
    is not kept is destroyed: bind groups that still name it do not hold its memory. All but what the end of a
    holder starts happens inside the device's gate.
    """

    def __init__(self, most_bytes: int, usage: int = STORAGE_USAGE) -> None:
        self.most_bytes, self.usage = most_bytes, usage
        # Of those that are free, and of those that are lent, with what came back and is not sorted in.
        self.bytes = self.lent_bytes = 0
        # By size, heaps by wgpu's uid: of several the oldest is taken, so that calls that repeat themselves
        # meet the same buffers again, and their bind groups.
        self._free: OrderedDict[int, list[tuple[int, Any]]] = OrderedDict()
        self._lent: dict[int, tuple[_Lent, _Lent]] = {}
        self._returned: deque[_Lent] = deque()
        self._itself = weakref.ref(self)

    def take(self, device: Device, data_bytes: int) -> Any:
        """A buffer for that many bytes, with room for a guard; what it holds is left from before."""
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
        # wgpu ends the process where commands are submitted that name a destroyed buffer.
        found.destroy = _refuse_to_destroy
        return found

    def lend(self, holder: object, gate: Gate, buffer: Any) -> None:
        """Have a buffer handed in when its holder is gone; the device may still be at work on it.

        The garbage collector tells of it at any moment, in the middle of `take` too. The last reference is
        told first, and what it calls is no Python code: nothing interrupts it. (A `__del__` would not do: in
        a cycle of garbage the buffer would be garbage too, which wgpu releases.)
        """
        later, first = _Lent(holder, _tidying()), _Lent(holder, self._returned.append)
        later.gate, later.pool, first.buffer = gate, self._itself, buffer
        self._lent[buffer.uid] = later, first
        self.lent_bytes += buffer.size

    def give_back(self, buffer: Any) -> None:
        """Hand a buffer in; the device may still be at work on it, since it does its work in order."""
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
        """Whether some of what came back, or is free, has to go."""
        if self.bytes + self.lent_bytes <= self.most_bytes and len(self._returned) <= _MOST_RETURNED:
            return False  # whatever of it came back: each array's end asks
        returned = tuple(self._returned)
        most = self.most_bytes - self.bytes
        return len(returned) > _MOST_RETURNED or sum(lent.buffer.size for lent in returned) > most

    def sort_in(self) -> None:
        """Hand in what came back by itself."""
        while self._returned:
            buffer = self._returned.popleft().buffer
            del self._lent[buffer.uid]
            self.lent_bytes -= buffer.size
            self.give_back(buffer)


def _refuse_to_destroy() -> NoReturn:
    raise WebnormError("this buffer is webnorm's; expected its array to be let go, which frees it")


def _destroy(buffer: Any) -> None:
    type(buffer).destroy(buffer)


def _tidying() -> Callable[[_Lent], None]:
    """What the garbage collector calls to have memory freed at once where more came back than is kept; else
    that waits for the next `take`.

    It goes on inside of a `try`: a function would meet a signal before its first line, where Python drops
    what the signal's handler raises.
    """
    steps = _tidied()
    next(steps)
    return steps.send


def _tidied() -> Generator[None, _Lent]:
    try:
        lent = yield
        pool = lent.pool()
        if pool is not None and pool.overfull() and not sys.is_finalizing():
            lent.gate.tidy(pool.sort_in)
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
    """The next of the sizes that buffers are kept in; what is needed itself where that is over a limit."""
    size = buffer_bytes(data_bytes)
    step = max(16, 1 << max(0, size.bit_length() - 1 - (_STEPS_PER_OCTAVE - 1).bit_length()))
    rounded = -(-size // step) * step
    if rounded <= min(most_bound, most):
        return rounded
    if size > most:
        raise WebnormError(f"an array takes {size} bytes; this device's largest buffer is {most} bytes")
    return size


def read_buffers(
    device: Device, pool: BufferPool, sources: Sequence[Source], encoder: Any = None
) -> list[Array]:
    """The arrays at the beginning of buffers as new NumPy arrays, by way of a buffer of a staging pool.

    Small ones come with one submission and one wait. `encoder` holds commands that come before; it is
    submitted with the first copies. Raises WebnormError for arrays that find no room in memory.
    """
    try:
        found = [np.empty(shape, dtype) for _, shape, dtype in sources]
    except MemoryError as error:
        raise WebnormError(f"what is read finds no room: {one_line(str(error))}") from error
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
            # As in wgpu-py's own read_buffer: plain READ would submit once more.
            staging.map_sync("READ_NOSYNC", 0, size)
            mapped = np.frombuffer(staging.read_mapped(0, size, copy=False), np.uint8)
            for at, piece in batch:
                piece.target[:] = mapped[at : at + piece.target.size]
            del mapped
            staging.unmap()
        # Not after an error: a buffer that is still being mapped is of no use to the next call.
        pool.give_back(staging)
    return found


@dataclass(frozen=True)
class _Piece:
    """Bytes of a buffer from `begin` on, and where they go."""

    buffer: Any
    begin: int
    target: Array

    @property
    def copied(self) -> int:
        """Bytes that are copied: whole words."""
        return -(-self.target.size // 4) * 4

    @property
    def room(self) -> int:
        """Bytes up to where the next piece may lie."""
        return -(-self.target.size // 8) * 8


def _batches(pieces: Sequence[_Piece]) -> Iterator[list[tuple[int, _Piece]]]:
    """Pieces that fit the staging buffer together, each with its offset there."""
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
