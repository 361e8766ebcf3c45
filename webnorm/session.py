"""What calls share: the default device, compiled kernels, bindings and buffers, each kept up to a bound."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import wgpu

from webnorm import auto, tuning
from webnorm.device import STORAGE_USAGE, Device, Traits, open_device
from webnorm.errors import WebnormError
from webnorm.kernel import AUTO, Kernel, Variant, discover, fitting_variant, load, select
from webnorm.ops import Op
from webnorm.plan import Pipeline, Schedule, buffer_bytes, check_memory, compile_shader
from webnorm.problem import Problem
from webnorm.render import Shader, render_shader

PROGRAMS = 64
SCHEDULES = 256
BINDINGS = 1024
POOL_BYTES = 1 << 28
STAGING_BYTES = 1 << 27
# A buffer is up to an eighth larger than what it was taken for, so that sizes that are nearly the same
# share buffers.
_STEPS_PER_OCTAVE = 8

# Held around everything that wgpu does: its objects are not for several threads at once.
lock = threading.RLock()

V = TypeVar("V")


class Recent(Generic[V]):
    """The values used last, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made when it is not there."""
        try:
            self._values.move_to_end(key)
            return self._values[key]
        except KeyError:
            pass
        value = self._values[key] = make()
        while len(self._values) > self.most:
            self._values.popitem(last=False)
        return value


class BufferPool:
    """Buffers to use again, up to a total of bytes; those of the size used longest ago go first.

    New buffers are cleared by WebGPU before a shader sees them, which costs a pass over memory. A buffer that
    is not kept is destroyed: bind groups that still name it do not hold its memory.
    """

    def __init__(self, most_bytes: int, usage: int = STORAGE_USAGE) -> None:
        self.most_bytes, self.usage = most_bytes, usage
        self.bytes = 0
        # By size, heaps by wgpu's uid: of several the oldest is taken, so that calls that repeat themselves
        # meet the same buffers again, and their bind groups.
        self._free: OrderedDict[int, list[tuple[int, Any]]] = OrderedDict()
        self._returned: deque[Any] = deque()
        self._lock = threading.Lock()

    def take(self, device: Device, data_bytes: int) -> Any:
        """A buffer for that many bytes, with room for a guard; what it holds is left from before."""
        limits = device.limits
        size = _pooled_size(data_bytes, limits["max-storage-buffer-binding-size"], limits["max-buffer-size"])
        with self._lock:
            if self._returned:
                self._sort_in()
            free = self._free.get(size)
            if free:
                self._free.move_to_end(size)
                self.bytes -= size
                return heappop(free)[1]
        return device.create_buffer(size, self.usage)

    def give_back(self, buffer: Any) -> None:
        """Hand a buffer in; the device may still be at work on it, since it does its work in order.

        The garbage collector calls this at any moment, in the middle of `take` too: then the buffer waits.
        """
        self._returned.append(buffer)
        if self._lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self._lock.release()

    def _sort_in(self) -> None:
        while self._returned:
            buffer = self._returned.popleft()
            size = buffer.size
            if size > self.most_bytes:
                buffer.destroy()
                continue
            heappush(self._free.setdefault(size, []), (buffer.uid, buffer))
            self.bytes += size
        while self.bytes > self.most_bytes:
            size, free = next(iter(self._free.items()))
            if free:
                free.pop()[1].destroy()
                self.bytes -= size
            else:
                del self._free[size]


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


@dataclass(frozen=True)
class Program:
    """A shader, compiled. It serves every problem that differs in rows, eps and scale alone."""

    shader: Shader
    pipelines: tuple[Pipeline, ...]

    def shader_for(self, problem: Problem) -> Shader:
        """The shader with a problem's own rows, eps and scale."""
        return replace(self.shader, problem=problem)


class Session:
    """What calls on one device share. It does not hold the device, so that it ends with it."""

    def __init__(self) -> None:
        self.pool = BufferPool(POOL_BYTES)
        self.staging = BufferPool(STAGING_BYTES, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
        self.programs: Recent[Program] = Recent(PROGRAMS)
        self.schedules: Recent[Schedule] = Recent(SCHEDULES)
        self.bindings: Recent[list[Any]] = Recent(BINDINGS)
        self._tunings: tuple[tuning.Tuning, ...] | None = None

    def schedule(self, device: Device, op: Op, kernel: str | Path | None, problem: Problem) -> Schedule:
        """What computes a problem: by the named kernel, or what `auto` chooses.

        Its scalars are left to the caller. Raises WebnormError for an unknown kernel, one of another op,
        one that cannot run the problem, or buffers that the device cannot hold.
        """
        name, stamp = _identity(kernel)
        key = (op.name, name, stamp, problem.signature)
        return self.schedules.get(key, lambda: self._schedule(device, op, name, stamp, problem))

    def _schedule(self, device: Device, op: Op, name: str | None, stamp: Stamp, problem: Problem) -> Schedule:
        problem = replace(problem, eps=1.0, scale=1.0, seed=0, distribution="given")
        op.check(problem)
        check_memory(problem, op, device)
        variant = self._choose(op, name, problem, device)
        # The part of the problem that pipelines are compiled for.
        compiled_for = replace(problem, rows=problem.rows if variant.kernel.compiles_rows_in else 1)
        key = (variant.kernel.path, stamp, tuple(variant.constants.items()), compiled_for)
        program = self.programs.get(key, lambda: _compile(device, variant, compiled_for))
        return Schedule(device, program.shader_for(problem), program.pipelines)

    def groups(self, schedule: Schedule, buffers: Mapping[str, Any]) -> list[Any]:
        """The bind groups of a schedule for these buffers, made when they are not there.

        wgpu gives no uid twice, so that a key whose buffers are gone is never found.
        """
        key = (schedule, *[buffers[name].uid for name in schedule.names])
        return self.bindings.get(key, lambda: schedule.bind(buffers))

    def _choose(self, op: Op, name: str | None, problem: Problem, device: Device) -> Variant:
        if name is not None:
            return _named(op, name, problem, device.traits)
        return auto.choose(_kernels(), op, problem, device.traits, self._tunings_of(device)).variant

    def _tunings_of(self, device: Device) -> tuple[tuning.Tuning, ...]:
        """The tunings that hold on the device, read once; a warning tells of one that does not."""
        if self._tunings is None:
            self._tunings, note = tuning.applicable(tuning.Platform.of(device.adapter.description()))
            if note is not None:
                warnings.warn(note, stacklevel=2)
        return self._tunings


_sessions: WeakKeyDictionary[Device, Session] = WeakKeyDictionary()


def session_of(device: Device) -> Session:
    """The session of a device."""
    with lock:
        found = _sessions.get(device)
        if found is None:
            found = _sessions[device] = Session()
        return found


@lru_cache(maxsize=1)
def _shared_device() -> Device:
    return open_device()


def default_device() -> Device:
    """The device that calls without `device=` share, opened on first use."""
    with lock:
        return _shared_device()


@lru_cache(maxsize=1)
def _kernels() -> tuple[Kernel, ...]:
    return tuple(discover())


Stamp = tuple[int, int] | None


def _identity(kernel: str | Path | None) -> tuple[str | None, Stamp]:
    """A kernel's name, and for a file when it was written and its size; None stands for auto."""
    if kernel is None or kernel == AUTO:
        return None, None
    if not isinstance(kernel, str | Path):
        raise WebnormError(f"kernel is {kernel!r}; expected a kernel's name or the path of a .wgsl file")
    name = str(kernel)
    if not name.endswith(".wgsl"):
        return name, None
    path = Path(name).resolve()
    try:
        status = path.stat()
    except OSError as error:
        raise WebnormError(f"{name}: cannot read the kernel: {error.strerror}") from error
    return str(path), (status.st_mtime_ns, status.st_size)


def _named(op: Op, name: str, problem: Problem, traits: Traits) -> Variant:
    kernel = load(Path(name), op.name) if name.endswith(".wgsl") else select(_kernels(), name, op.name)
    if kernel.op != op:
        raise WebnormError(f"kernel {name} computes {kernel.op.name}; expected a kernel of {op.name}")
    variant, refusal = fitting_variant(kernel, problem, traits)
    if variant is None:
        raise WebnormError(f"kernel {name} cannot run {problem}: {refusal}")
    return variant


def _compile(device: Device, variant: Variant, problem: Problem) -> Program:
    shader = render_shader(variant, problem, "native", device.traits)
    return Program(shader, tuple(compile_shader(device, shader)))
