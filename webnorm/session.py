"""What calls share: the default device, compiled kernels and buffers, each kept up to a bound."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from webnorm import auto, tuning
from webnorm.device import Device, Traits, open_device
from webnorm.errors import WebnormError
from webnorm.kernel import Kernel, Variant, discover, fitting_variant, load, select
from webnorm.ops import Op
from webnorm.plan import Pipeline, buffer_bytes, compile_shader
from webnorm.problem import Problem
from webnorm.render import Shader, render_shader

PROGRAMS = 64
CHOICES = 256
POOL_BYTES = 1 << 28
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
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = self._values[key] = make()
        while len(self._values) > self.most:
            self._values.popitem(last=False)
        return value


class BufferPool:
    """Storage buffers to use again, up to a total of bytes; those of the size used longest ago go first.

    New buffers are cleared by WebGPU before a shader sees them, which costs a pass over memory.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._free: OrderedDict[int, list[Any]] = OrderedDict()
        self._returned: deque[Any] = deque()
        self._lock = threading.Lock()

    def take(self, device: Device, data_bytes: int) -> Any:
        """A buffer for that many bytes, with room for a guard; what it holds is left from before."""
        size = _pooled_size(buffer_bytes(data_bytes), device)
        with self._lock:
            self._sort_in()
            free = self._free.get(size)
            if free:
                self._free.move_to_end(size)
                self.bytes -= size
                return free.pop()
        return device.create_buffer(size)

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
            if buffer.size > self.most_bytes:
                continue
            self._free.setdefault(buffer.size, []).append(buffer)
            self.bytes += buffer.size
        while self.bytes > self.most_bytes:
            size, free = next(iter(self._free.items()))
            if free:
                free.pop()
                self.bytes -= size
            else:
                del self._free[size]


def _pooled_size(size: int, device: Device) -> int:
    """The next of the sizes that buffers are kept in; the size itself where that is over a limit."""
    step = max(16, 1 << max(0, size.bit_length() - 1 - (_STEPS_PER_OCTAVE - 1).bit_length()))
    rounded = -(-size // step) * step
    limits = device.limits
    if rounded <= min(limits["max-storage-buffer-binding-size"], limits["max-buffer-size"]):
        return rounded
    if size > limits["max-buffer-size"]:
        raise WebnormError(
            f"an array takes {size} bytes; this device's largest buffer is {limits['max-buffer-size']} bytes"
        )
    return size


@dataclass(frozen=True)
class Program:
    """A shader, compiled. It serves every problem that differs in rows, eps and scale alone."""

    shader: Shader
    pipelines: tuple[Pipeline, ...]

    def shader_for(self, problem: Problem) -> Shader:
        """The shader with a problem's own rows, eps and scale."""
        return replace(self.shader, problem=problem)


@dataclass(frozen=True)
class _Choice:
    """A variant for a problem, and the problem's part that its pipelines are compiled for."""

    variant: Variant
    compiled_for: Problem


class Session:
    """What calls on one device share. It does not hold the device, so that it ends with it."""

    def __init__(self) -> None:
        self.pool = BufferPool(POOL_BYTES)
        self.programs: Recent[Program] = Recent(PROGRAMS)
        self._choices: Recent[_Choice] = Recent(CHOICES)
        self._tunings: tuple[tuning.Tuning, ...] | None = None

    def program(self, device: Device, op: Op, kernel: str | Path | None, problem: Problem) -> Program:
        """The compiled kernel for a problem: the named one, or what `auto` chooses.

        Raises WebnormError for an unknown kernel, one of another op, or one that cannot run the problem.
        """
        problem = replace(problem, eps=1.0, scale=1.0, seed=0, distribution="given")
        name, stamp = _identity(kernel)
        choice = self._choices.get(
            (op.name, name, stamp, problem), lambda: self._choose(op, name, problem, device)
        )
        variant = choice.variant
        key = (variant.kernel.path, stamp, tuple(variant.constants.items()), choice.compiled_for)
        return self.programs.get(key, lambda: _compile(device, variant, choice.compiled_for))

    def _choose(self, op: Op, name: str | None, problem: Problem, device: Device) -> _Choice:
        op.check(problem)
        if name is None:
            variant = auto.choose(_kernels(), op, problem, device.traits, self._tunings_of(device)).variant
        else:
            variant = _named(op, name, problem, device.traits)
        rows = problem.rows if variant.kernel.compiles_rows_in else 1
        return _Choice(variant, replace(problem, rows=rows))

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
        if device not in _sessions:
            _sessions[device] = Session()
        return _sessions[device]


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
    if kernel is None or kernel == auto.AUTO:
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
