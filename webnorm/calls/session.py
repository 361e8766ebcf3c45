"""The state that calls share: the default device, and bounded caches of kernels, bindings and buffers."""

from __future__ import annotations

import pkgutil
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from webnorm.choice import tuning
from webnorm.choice.defaults import choose_own, fitting_variant
from webnorm.errors import WebnormError, shown
from webnorm.gpu.buffers import check_memory
from webnorm.gpu.device import Device, open_device, opening
from webnorm.gpu.pipelines import Pipeline, compile_shader
from webnorm.gpu.pool import STAGING_USAGE, BufferPool
from webnorm.gpu.schedule import Schedule
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import AUTO, own_kernel, own_kernels, select
from webnorm.kernels.headers.sources import identity, is_wgsl, wgsl_files
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.op.op import Op, OpSource, Task
from webnorm.op.problem import Problem
from webnorm.op.registry import OPS

V = TypeVar("V")


class LRU(Generic[V]):
    """A cache of the `most` values used last.

    `let_go` is called with the key and value of each that is removed.
    """

    def __init__(self, most: int, let_go: Callable[[Any, V], object] | None = None) -> None:
        self.most, self._let_go = most, let_go
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def peek(self, key: Hashable) -> V | None:
        """Return the value of a key, or None. This does not count as a use."""
        return self._values.get(key)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of a key, and make it if it is missing."""
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
        """Count a use of an existing key."""
        self._values.move_to_end(key)

    def drop(self, key: Hashable) -> None:
        """Remove an existing key."""
        value = self._values.pop(key)
        if self._let_go is not None:
            self._let_go(key, value)


PROGRAMS = 64
SCHEDULES = 256
BINDINGS = 1024
POOL_BYTES = 1 << 28
STAGING_BYTES = 1 << 27

_uid = attrgetter("uid")

# The function that tunes a task without a recorded choice and returns the new Tuning, or None. It uses the
# lab, which calls must not import. So this is its name, as for an op's hooks; the first call that needs it
# imports it.
TUNER = "webnorm.autotune:tuned"

# A hash of the modification times and sizes of a kernel's files.
Stamp = int | None


@dataclass(frozen=True)
class CompiledKernel:
    """A compiled shader. It serves every problem that differs only in its batch and its scalars.

    `schedules` contains the keys of the schedules that use it.
    """

    shader: Shader
    pipelines: tuple[Pipeline, ...]
    schedules: set[Hashable] = field(default_factory=set)


class _Kept(Schedule):
    """A schedule with the keys of its program and of its bind groups."""

    def __init__(self, device: Device, program: CompiledKernel, key: str, problem: Problem) -> None:
        super().__init__(device, replace(program.shader, problem=problem), program.pipelines)
        self.program, self.program_key = program, key
        self.groups: set[Hashable] = set()


@dataclass(frozen=True)
class _Rendered:
    """A shader for a problem, and the cache key of its compiled kernel."""

    key: str
    shader: Shader
    problem: Problem


class CallPlanRequest(NamedTuple):
    """The schedule that a call needs, under its cache key. `rendered` is None if the cache contains it."""

    key: Hashable
    task: Task
    kernel: str | None
    stamp: Stamp
    rendered: _Rendered | None


class CallSession:
    """The caches that calls on one device share. It does not refer to the device, so both end together.

    Removing an entry also removes its dependents: the schedules of a program, and the bind groups of a
    schedule. Each of them refers to pipelines, which take megabytes.
    """

    def __init__(self) -> None:
        self.pool = BufferPool(POOL_BYTES)
        self.staging = BufferPool(STAGING_BYTES, STAGING_USAGE)
        self.bindings: LRU[list[Any]] = LRU(BINDINGS, _unbind)
        self.schedules: LRU[_Kept] = LRU(SCHEDULES, partial(_drop_groups, self.bindings))
        self.programs: LRU[CompiledKernel] = LRU(PROGRAMS, partial(_drop_schedules, self.schedules))
        self._tuning: tuning.Tuning | None = None
        self._looked_for_one = False

    def wanted(self, device: Device, task: Task, kernel: str | Path | None) -> CallPlanRequest:
        """Select the kernel for a task, and render it if it is new.

        The kernel is the named one, or the choice of `auto`. The function runs outside the gate: it needs no
        device, so other threads can continue, and Ctrl-C ends it at once.

        Raises
        ------
        WebnormError
            The kernel is unknown, belongs to another op, or cannot run the problem; or the device cannot
            allocate the buffers.
        """
        device.gate.check()
        name, stamp = (None, None) if kernel is None else _identity(kernel)
        if task.op.source is not None and task.op.is_users and stamp is None:
            stamp = _folder_stamp(task.op.source)
        key = (task.op.name, name, stamp, task.problem.signature)
        wanted = CallPlanRequest(key, task, name, stamp, None)
        if key in self.schedules:
            return wanted
        return wanted._replace(rendered=self._render(device, wanted))

    def schedule(self, device: Device, wanted: CallPlanRequest) -> Schedule:
        """Return the schedule of a request, compiled if it is new. The caller sets the scalars."""
        found = self.schedules.get(wanted.key, lambda: self._schedule(device, wanted))
        self.programs.touch(found.program_key)
        return found

    def _render(self, device: Device, wanted: CallPlanRequest) -> _Rendered:
        op = wanted.task.op
        problem = wanted.task.problem
        problem = replace(problem, **dict.fromkeys(problem.SCALARS, 1.0), seed=0, distribution="given")
        task = Task(op, problem)
        with _rendering:
            op.check(problem)
            check_memory(task, device)
            variant = self._choose(task, wanted.kernel, device)
            # The part of the problem on which the text depends.
            compiled_for = problem.with_batch(problem.batch_size if variant.kernel.compiles_batch_in else 1)
            # A string caches its hash.
            key = repr((str(variant.kernel.path), op.name, wanted.stamp, variant.constants, compiled_for))
            known = self.programs.peek(key)
            shader = (
                known.shader if known else render_shader(variant, compiled_for, device.target, device.traits)
            )
        return _Rendered(key, shader, problem)

    def _schedule(self, device: Device, wanted: CallPlanRequest) -> _Kept:
        # Another thread's calls may have removed the schedule since.
        rendered = wanted.rendered or self._render(device, wanted)
        key, shader = rendered.key, rendered.shader
        program = self.programs.get(
            key, lambda: CompiledKernel(shader, tuple(compile_shader(device, shader)))
        )
        made = _Kept(device, program, key, rendered.problem)
        program.schedules.add(wanted.key)
        return made

    def groups(self, schedule: Schedule, buffers: Mapping[str, Any]) -> list[Any]:
        """Return the bind groups of a schedule for these buffers, created if they are missing.

        wgpu never reuses a uid, so a key with released buffers is never found.
        """
        key = (schedule, *map(_uid, map(buffers.__getitem__, schedule.names)))
        return self.bindings.get(key, lambda: _bind(schedule, key, buffers))

    def _choose(self, task: Task, name: str | None, device: Device) -> Variant:
        if name is not None:
            variant, refusal = fitting_variant(_of_op(task.op, name), task.problem, device.traits)
            if variant is None:
                raise WebnormError(f"kernel {name} cannot run {task.problem}: {refusal}")
            return variant
        chosen = choose_own(task, device.traits, self._tuning_of(device))
        if chosen.source == "rules":
            found: tuning.Tuning | None = pkgutil.resolve_name(TUNER)(task, device)
            if found is not None:
                self._tuning = found
                chosen = choose_own(task, device.traits, found)
        return chosen.variant

    def _tuning_of(self, device: Device) -> tuning.Tuning | None:
        """Return the recorded tuning that applies to the device, read once; warn if one does not apply."""
        if not self._looked_for_one:
            self._looked_for_one = True
            self._tuning, note = tuning.applicable(tuning.Platform.of(device.adapter.description()))
            if note is not None:
                warnings.warn(note, stacklevel=2)
        return self._tuning


def _bind(schedule: Schedule, key: Hashable, buffers: Mapping[str, Any]) -> list[Any]:
    made = schedule.bind(buffers)
    if isinstance(schedule, _Kept):
        schedule.groups.add(key)
    return made


def _unbind(key: tuple[_Kept, Any], groups: list[Any]) -> None:
    key[0].groups.discard(key)


def _drop_groups(bindings: LRU[list[Any]], key: Hashable, schedule: _Kept) -> None:
    schedule.program.schedules.discard(key)
    for one in tuple(schedule.groups):
        bindings.drop(one)


def _drop_schedules(schedules: LRU[_Kept], key: Hashable, program: CompiledKernel) -> None:
    for one in tuple(program.schedules):
        schedules.drop(one)


# Only one thread renders templates at a time.
_rendering = threading.RLock()


def session_of(device: Device) -> CallSession:
    """Return the session of a device."""
    found = device.session
    if found is None:
        with device.gate:
            if device.session is None:
                device.session = CallSession()
            found = device.session
    kept: CallSession = found
    return kept


_default: list[Device] = []


def default_device() -> Device:
    """Return the device that calls without `device=` share.

    It is opened on first use, and again after it broke.
    """
    if _default and _default[0].gate.refusal is None:
        return _default[0]
    with opening:
        if not _default or _default[0].gate.refusal is not None:
            _default[:] = [open_device()]
        return _default[0]


def _identity(kernel: str | Path | None) -> tuple[str | None, Stamp]:
    """Return a kernel's name, and a stamp that changes with its file; (None, None) for auto."""
    if kernel is None or (isinstance(kernel, str) and kernel == AUTO):
        return None, None
    if not isinstance(kernel, str | Path):
        raise WebnormError(f"kernel is {shown(kernel)}; expected a kernel's name or the path of a .wgsl file")
    name = str(kernel)
    if not is_wgsl(name):
        return name, None
    return identity(Path(name))


def _folder_stamp(source: OpSource) -> Stamp:
    """Return a number that changes when the files of a user op change. Its kernels are found by name."""
    files = wgsl_files(source.files)
    return hash((source.digest, *((path.name, path.stat().st_mtime_ns) for path in files)))


def check_kernel(op: Op, kernel: str | Path | None) -> None:
    """Raise WebnormError if an op has no such kernel. The check needs no device."""
    name, _ = _identity(kernel)
    if name is not None:
        _of_op(op, name)


def _of_op(op: Op, name: str) -> Kernel:
    if is_wgsl(name):
        kernel = load(Path(name), op.name)
    else:
        # Kernels of other ops are only for the error.
        every = (one for each in OPS for one in own_kernels(each))
        kernel = own_kernel(op.name, name) or select([*every], name, op.name)
    if kernel.op != op:
        raise WebnormError(f"kernel {name} computes {kernel.op.name}; expected a kernel of {op.name}")
    return kernel
