"""The part of `bench.backends` that runs in the worker processes: preparing, sampling and compiling shaders.

A worker keeps prepared shaders, because the parent takes samples from the two workers by turns.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import backend_variants
from webnorm.errors import WebnormError
from webnorm.gpu import backend, timing
from webnorm.gpu.buffers import write
from webnorm.gpu.compute_programs import ComputeProgram, PreparedDispatches
from webnorm.gpu.device import Device, open_device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.stopwatch import Stopwatch
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.run import jobs
from webnorm.lab.verify.timed_work import SOFTWARE_SETTLES_S, sampler, timing_setup
from webnorm.op.op import Task

# The folder to which the layer of spirv_layer.c writes modules.
SPIRV_VARIABLE = "WEBNORM_SPIRV"
# The bindings of the small shaders: the source, the target, and the numbers.
KINDS = ("read-only-storage", "storage", "read-only-storage")


@dataclass(frozen=True)
class Setting:
    """A backend, with some of its compiler's safety measures left out.

    `toggles` are the toggles to enable in Dawn. `checks` are the bits of WGPUShaderRuntimeChecks that
    wgpu-native keeps; None for its default.
    """

    name: str
    backend: str
    toggles: tuple[str, ...] = ()
    checks: int | None = None


@dataclass(frozen=True)
class PrepareJob:
    """A variant on a problem to prepare under a setting; without a task, the small shaders of `--variants`.

    The device gets these `limits` and is opened `without` these features, so that both backends can compile
    the same text. Outputs are compared with float64 if the variant is `checked`.
    """

    setting: Setting
    without: frozenset[str]
    limits: tuple[tuple[str, int], ...]
    task: Task | None = None
    spec: jobs.VariantSpec | None = None
    sets: int = 1
    checked: bool = False


@dataclass(frozen=True)
class _Ready:
    """Prepared samplers, and the pace of their device."""

    samplers: list[timing.Sampler]
    pace: timing.Pace


_ready: dict[Setting, _Ready] = {}


@cache
def _opened(adapter: Any, setting: Setting, without: frozenset[str], limits: tuple[Any, ...]) -> Device:
    """Return a device of the setting, opened once."""
    if not backend.IS_DAWN:
        return open_device(adapter, limits=dict(limits), without=without)
    # In Dawn an adapter makes one device only.
    own = next(one for one in backend.wgpu.gpu.enumerate_adapters_sync() if one.info == adapter.handle.info)
    features = sorted(adapter.features - without)
    asked = {**adapter.limits, **dict(limits)}
    return Device(adapter, backend.request_dawn_device(own, features, asked, setting.toggles), without)


@contextmanager
def _checks_of(setting: Setting) -> Iterator[None]:
    """Let wgpu-native compile with the setting's checks, for which wgpu-py has no public function."""
    if setting.checks is None:
        yield
        return
    from wgpu.backends.wgpu_native import _api

    library, checks = _api.libf, setting.checks
    usual, trusting = library.wgpuDeviceCreateShaderModule, library.wgpuDeviceCreateShaderModuleTrusted
    library.wgpuDeviceCreateShaderModule = lambda device, described: trusting(device, described, checks)
    try:
        yield
    finally:
        library.wgpuDeviceCreateShaderModule = usual


def forget(device: Device, job: None) -> Iterator[Any]:
    """Release everything that is prepared."""
    _ready.clear()
    yield None


def prepare(device: Device, job: PrepareJob) -> Iterator[None]:
    """Prepare a job's samplers: the copy and the variant, or all small shaders.

    Raises WebnormError if the variant cannot run or is wrong.
    """
    opened = _opened(device.adapter, job.setting, job.without, job.limits)
    with _checks_of(job.setting):
        _ready[job.setting] = _small_shaders(opened) if job.task is None else _on_problem(opened, job)
    yield None


def _on_problem(device: Device, job: PrepareJob) -> _Ready:
    assert job.task is not None and job.spec is not None
    rule = timing.StoppingRule()
    board = jobs.buffers_for_job(
        device, jobs.TimingJob(job.task, (job.spec,), (), job.sets, rule, repeated=True)
    )
    if job.checked:
        result, plan, _ = jobs.try_named(board, job.spec)
        if plan is None:
            raise WebnormError(f"{job.setting.name}: {result.kernel} {result.status}: {result.reason}")
    else:
        plan = board.prepare(job.spec.variant())
    setup = timing_setup(board, rule.settle_s)
    return _Ready([sampler(setup, setup.copying[0])[0], sampler(setup, plan)[0]], setup.pace)


class _Numbered:
    """Dispatches that are the same for every number."""

    def __init__(self, prepared: PreparedDispatches) -> None:
        self._prepared = prepared

    def encode(self, compute: Any, index: int = 0) -> None:
        self._prepared.encode(compute)


def _small_shaders(device: Device) -> _Ready:
    software = device.traits.software
    size = backend_variants.SOFTWARE_BYTES if software else backend_variants.GPU_BYTES
    source, target = device.create_buffer(size), device.create_buffer(size)
    numbers = device.create_buffer(4 * len(backend_variants.NUMBERS))
    write(device, numbers, np.array(backend_variants.NUMBERS, np.uint32))
    bound = [(buffer, 0, buffer.size) for buffer in (source, target, numbers)]
    watch = Stopwatch(device)
    found = []
    for one in backend_variants.VARIANTS:
        program = ComputeProgram(device.handle, one.text, KINDS)
        workgroups = size // (backend_variants.WORKGROUP_BYTES * one.per_invocation)
        found.append(watch.sampler(_Numbered(program.on(bound, workgroups)))[0])
    settle_s = SOFTWARE_SETTLES_S if software else timing.StoppingRule().settle_s
    return _Ready(found, timing.Pace(found[0], settle_s))


def sample(device: Device, job: tuple[Setting, int]) -> Iterator[tuple[list[list[float]], bool]]:
    """Yield samples of everything that is prepared under a setting, and whether the clock had settled."""
    setting, count = job
    ready = _ready[setting]
    samples: list[list[float]] = [[] for _ in ready.samplers]
    rule = timing.StoppingRule(least=count, most=count, budget_s=math.inf)
    for _ in timing.take_turns(ready.samplers, samples, rule, ready.pace):
        pass
    yield samples, ready.pace.settled


def compile_shaders(device: Device, job: PrepareJob) -> Iterator[tuple[str, str, tuple[bytes, ...]]]:
    """Yield the name, the WGSL and the SPIR-V modules of the job's shaders, from the layer's folder."""
    opened = _opened(device.adapter, job.setting, job.without, job.limits)
    folder = Path(os.environ[SPIRV_VARIABLE])
    for name, text, compiled in _compilations(opened, job):
        before = {*folder.iterdir()}
        with _checks_of(job.setting):
            compiled()
        yield name, text, tuple(one.read_bytes() for one in sorted({*folder.iterdir()} - before))


def _compilations(device: Device, job: PrepareJob) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Yield the name, the WGSL and a function that compiles, for each shader of the job."""
    if job.task is None or job.spec is None:
        for one in backend_variants.VARIANTS:
            yield one.name, one.text, partial(ComputeProgram, device.handle, one.text, KINDS)
    else:
        shader = render_shader(job.spec.variant(), job.task.problem, device.target, device.traits)
        yield str(job.task), shader.text, partial(compile_shader, device, shader)
