"""What calls share: the default device, compiled kernels, bindings and buffers, each kept up to a bound."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import wgpu

from webnorm.choice import auto, tuning
from webnorm.errors import WebnormError, shown
from webnorm.files import absolute
from webnorm.gpu.device import STORAGE_USAGE, Device, Traits, open_device, opening
from webnorm.gpu.gate import Gate, interrupt_later
from webnorm.gpu.plan import Pipeline, Schedule, buffer_bytes, check_memory, compile_shader
from webnorm.kernels.kernel import AUTO, Kernel, Variant, discover, fitting_variant, load, select
from webnorm.kernels.render import Shader, render_shader, revision
from webnorm.norms.ops import Op
from webnorm.norms.problem import Problem
from webnorm.printable import one_line

PROGRAMS = 64
SCHEDULES = 256
BINDINGS = 1024
POOL_BYTES = 1 << 28
STAGING_BYTES = 1 << 27
# Buffers that wait to be sorted in.
_MOST_RETURNED = 64
# A buffer is up to an eighth larger than what it was taken for, so that sizes that are nearly the same
# share buffers.
_STEPS_PER_OCTAVE = 8

# When each of the files that a kernel is made of was written, and its size.
Stamp = int | None
V = TypeVar("V")


class Recent(Generic[V]):
    """The values used last, at most `most` of them; `let_go` is told of each that goes, and its key."""

    def __init__(self, most: int, let_go: Callable[[Any, V], object] | None = None) -> None:
        self.most, self._let_go = most, let_go
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def peek(self, key: Hashable) -> V | None:
        """The value of a key, if it is there; that does not count as a use."""
        return self._values.get(key)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made when it is not there."""
        try:
            self._values.move_to_end(key)
            return self._values[key]
        except KeyError:
            pass
        value = self._values[key] = make()
        while len(self._values) > self.most:
            self.drop(next(iter(self._values)))
        return value

    def touch(self, key: Hashable) -> None:
        """Count a use of a key that is there."""
        self._values.move_to_end(key)

    def drop(self, key: Hashable) -> None:
        """Let a key go that is there."""
        value = self._values.pop(key)
        if self._let_go is not None:
            self._let_go(key, value)


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
        self.bytes = 0
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
        later, first = _Lent(holder, _tidy), _Lent(holder, self._returned.append)
        later.gate, later.pool, first.buffer = gate, self._itself, buffer
        self._lent[buffer.uid] = later, first

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
        returned = tuple(self._returned)
        most = self.most_bytes - self.bytes
        return len(returned) > _MOST_RETURNED or sum(lent.buffer.size for lent in returned) > most

    def sort_in(self) -> None:
        """Hand in what came back by itself."""
        while self._returned:
            buffer = self._returned.popleft().buffer
            del self._lent[buffer.uid]
            self.give_back(buffer)


def _refuse_to_destroy() -> NoReturn:
    raise WebnormError("this buffer is webnorm's; expected its array to be let go, which frees it")


def _destroy(buffer: Any) -> None:
    type(buffer).destroy(buffer)


def _tidy(lent: _Lent) -> None:
    """Have memory freed at once where more came back than is kept; else that waits for the next `take`."""
    try:
        pool = lent.pool()
        if pool is not None and pool.overfull() and not sys.is_finalizing():
            lent.gate.tidy(pool.sort_in)
    except KeyboardInterrupt:
        interrupt_later()


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
    """A shader, compiled. It serves every problem that differs in rows, eps and scale alone.

    `schedules` has the keys of those that are made of it.
    """

    shader: Shader
    pipelines: tuple[Pipeline, ...]
    schedules: set[Hashable] = field(default_factory=set)


class _Kept(Schedule):
    """A schedule with the keys of its program and of its bind groups."""

    def __init__(self, device: Device, program: Program, key: str, problem: Problem) -> None:
        super().__init__(device, replace(program.shader, problem=problem), program.pipelines)
        self.program, self.program_key = program, key
        self.groups: set[Hashable] = set()


@dataclass(frozen=True)
class _Rendered:
    """A shader for a problem, and the key of the program that it is compiled to."""

    key: str
    shader: Shader
    problem: Problem


class Wanted(NamedTuple):
    """What a call asks for, under the key of its schedule; `rendered` where that was not there."""

    key: Hashable
    op: Op
    kernel: str | None
    stamp: Stamp
    problem: Problem
    rendered: _Rendered | None


class Session:
    """What calls on one device share. It does not hold the device, so that it ends with it.

    What goes takes along what was made of it, a program its schedules and a schedule its bind groups: each of
    them holds pipelines, which take megabytes.
    """

    def __init__(self) -> None:
        self.pool = BufferPool(POOL_BYTES)
        self.staging = BufferPool(STAGING_BYTES, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
        self.bindings: Recent[list[Any]] = Recent(BINDINGS, _unbind)
        self.schedules: Recent[_Kept] = Recent(SCHEDULES, partial(_drop_groups, self.bindings))
        self.programs: Recent[Program] = Recent(PROGRAMS, partial(_drop_schedules, self.schedules))
        self._tunings: tuple[tuning.Tuning, ...] | None = None

    def wanted(self, device: Device, op: Op, kernel: str | Path | None, problem: Problem) -> Wanted:
        """What computes a problem: the named kernel, or what `auto` chooses; rendered, where it is new.

        That is done outside the gate: it needs no device, others can go on, and Ctrl-C ends it at once.
        Raises WebnormError for an unknown kernel, one of another op, one that cannot run the problem, or
        buffers that the device cannot hold.
        """
        device.gate.check()
        name, stamp = _identity(kernel)
        wanted = Wanted((op.name, name, stamp, problem.signature), op, name, stamp, problem, None)
        if wanted.key in self.schedules:
            return wanted
        return wanted._replace(rendered=self._render(device, wanted))

    def schedule(self, device: Device, wanted: Wanted) -> Schedule:
        """The schedule of what is wanted, compiled where it is new; eps and scale are left to the caller."""
        found = self.schedules.get(wanted.key, lambda: self._schedule(device, wanted))
        self.programs.touch(found.program_key)
        return found

    def _render(self, device: Device, wanted: Wanted) -> _Rendered:
        op = wanted.op
        problem = replace(wanted.problem, eps=1.0, scale=1.0, seed=0, distribution="given")
        with _rendering:
            op.check(problem)
            check_memory(problem, op, device)
            variant = self._choose(op, wanted.kernel, problem, device)
            # The part of the problem that pipelines are compiled for.
            compiled_for = replace(problem, rows=problem.rows if variant.kernel.compiles_rows_in else 1)
            # Text, since that knows its hash.
            key = repr((str(variant.kernel.path), wanted.stamp, variant.constants, compiled_for))
            known = self.programs.peek(key)
            shader = known.shader if known else render_shader(variant, compiled_for, "native", device.traits)
        return _Rendered(key, shader, problem)

    def _schedule(self, device: Device, wanted: Wanted) -> _Kept:
        # Not there if another thread's calls put it out since.
        rendered = wanted.rendered or self._render(device, wanted)
        key, shader = rendered.key, rendered.shader
        program = self.programs.get(key, lambda: Program(shader, tuple(compile_shader(device, shader))))
        made = _Kept(device, program, key, rendered.problem)
        program.schedules.add(wanted.key)
        return made

    def groups(self, schedule: Schedule, buffers: Mapping[str, Any]) -> list[Any]:
        """The bind groups of a schedule for these buffers, made when they are not there.

        wgpu gives no uid twice, so that a key whose buffers are gone is never found.
        """
        key = (schedule, *[buffers[name].uid for name in schedule.names])
        return self.bindings.get(key, lambda: _bind(schedule, key, buffers))

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


def _bind(schedule: Schedule, key: Hashable, buffers: Mapping[str, Any]) -> list[Any]:
    made = schedule.bind(buffers)
    if isinstance(schedule, _Kept):
        schedule.groups.add(key)
    return made


def _unbind(key: tuple[_Kept, Any], groups: list[Any]) -> None:
    key[0].groups.discard(key)


def _drop_groups(bindings: Recent[list[Any]], key: Hashable, schedule: _Kept) -> None:
    schedule.program.schedules.discard(key)
    for one in tuple(schedule.groups):
        bindings.drop(one)


def _drop_schedules(schedules: Recent[_Kept], key: Hashable, program: Program) -> None:
    for one in tuple(program.schedules):
        schedules.drop(one)


# Templates are rendered by one thread at a time.
_rendering = threading.RLock()


def session_of(device: Device) -> Session:
    """The session of a device."""
    found = device.session
    if found is None:
        with device.gate:
            if device.session is None:
                device.session = Session()
            found = device.session
    kept: Session = found
    return kept


_default: list[Device] = []


def default_device() -> Device:
    """The device that calls without `device=` share: opened on first use, and anew after it broke."""
    if _default and _default[0].gate.refusal is None:
        return _default[0]
    with opening:
        if not _default or _default[0].gate.refusal is not None:
            _default[:] = [open_device()]
        return _default[0]


@lru_cache(maxsize=1)
def _kernels() -> tuple[Kernel, ...]:
    return tuple(discover())


def _identity(kernel: str | Path | None) -> tuple[str | None, Stamp]:
    """A kernel's name, and for a file what tells that it changed; None stands for auto."""
    if kernel is None or (isinstance(kernel, str) and kernel == AUTO):
        return None, None
    if not isinstance(kernel, str | Path):
        raise WebnormError(f"kernel is {shown(kernel)}; expected a kernel's name or the path of a .wgsl file")
    name = str(kernel)
    if not name.endswith(".wgsl"):
        return name, None
    try:
        path = absolute(Path(name))
        path.stat()
        return str(path), revision(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise WebnormError(f"{one_line(name)}: cannot read the kernel: {why}") from error


def _named(op: Op, name: str, problem: Problem, traits: Traits) -> Variant:
    kernel = load(Path(name), op.name) if name.endswith(".wgsl") else select(_kernels(), name, op.name)
    if kernel.op != op:
        raise WebnormError(f"kernel {name} computes {kernel.op.name}; expected a kernel of {op.name}")
    variant, refusal = fitting_variant(kernel, problem, traits)
    if variant is None:
        raise WebnormError(f"kernel {name} cannot run {problem}: {refusal}")
    return variant
