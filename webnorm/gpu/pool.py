"""Buffers that were used and are free, kept up to a bound."""

from __future__ import annotations

import signal
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, NoReturn

from webnorm import signals
from webnorm.errors import WebnormError
from webnorm.gpu.buffers import buffer_bytes
from webnorm.gpu.device import STORAGE_USAGE, Device
from webnorm.gpu.gate import Gate, interrupt_later

# Buffers that wait to be sorted in.
_MOST_RETURNED = 64
# A buffer is up to an eighth larger than what it was taken for, so that sizes that are nearly the same
# share buffers.
_STEPS_PER_OCTAVE = 8


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
