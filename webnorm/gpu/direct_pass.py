"""A compute pass submitted without the objects that wgpu-py makes for one, which take half of its time.

What is called is what those objects call: wgpu-py's functions around wgpu-native's, which raise what is
complained of. They are no part of its interface. So where wgpu-py has none, or wgpu-native's are of other
types than here, the pass is made of wgpu-py's objects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from webnorm import signals

_PASS = "struct WGPUComputePassEncoderImpl *"
_ENCODER = "struct WGPUCommandEncoderImpl *"
_COMMANDS = "struct WGPUCommandBufferImpl *"
_TYPES = {
    "DeviceCreateCommandEncoder": f"{_ENCODER}(*)(struct WGPUDeviceImpl *, WGPUCommandEncoderDescriptor *)",
    "CommandEncoderBeginComputePass": f"{_PASS}(*)({_ENCODER}, WGPUComputePassDescriptor *)",
    "ComputePassEncoderSetPipeline": f"void(*)({_PASS}, struct WGPUComputePipelineImpl *)",
    "ComputePassEncoderSetBindGroup": (
        f"void(*)({_PASS}, uint32_t, struct WGPUBindGroupImpl *, size_t, uint32_t *)"
    ),
    "ComputePassEncoderDispatchWorkgroups": f"void(*)({_PASS}, uint32_t, uint32_t, uint32_t)",
    "ComputePassEncoderEnd": f"void(*)({_PASS})",
    "ComputePassEncoderRelease": f"void(*)({_PASS})",
    "CommandEncoderFinish": f"{_COMMANDS}(*)({_ENCODER}, WGPUCommandBufferDescriptor *)",
    "CommandEncoderRelease": f"void(*)({_ENCODER})",
    "QueueSubmit": f"void(*)(struct WGPUQueueImpl *, size_t, {_COMMANDS} *)",
    "CommandBufferRelease": f"void(*)({_COMMANDS})",
}


class _Native(NamedTuple):
    """The functions of `_TYPES`; C's null pointer, and what makes an array of one command buffer."""

    create: Callable[..., Any]
    begin: Callable[..., Any]
    set_pipeline: Callable[..., Any]
    set_bind_group: Callable[..., Any]
    dispatch: Callable[..., Any]
    end: Callable[..., Any]
    release_pass: Callable[..., Any]
    finish: Callable[..., Any]
    release_encoder: Callable[..., Any]
    submit: Callable[..., Any]
    release_commands: Callable[..., Any]
    null: Any
    array_of: Callable[[Any], Any]


@cache
def native_functions() -> _Native | None:
    """The functions, where they are what is known here."""
    names = [f"wgpu{name}" for name in _TYPES]
    try:
        from wgpu.backends.wgpu_native import _api, ffi, lib

        types = [ffi.typeof(getattr(lib, name)).cname for name in names]
        functions = [getattr(_api.libf, name) for name in names]
        array = ffi.typeof("WGPUCommandBuffer[]")
    except Exception as error:  # of another wgpu-py, or another cffi
        signals.let_through(error)
        return None
    if types != [*_TYPES.values()]:
        return None
    return _Native._make([*functions, ffi.NULL, lambda commands: ffi.new(array, [commands])])


class _Pass:
    """What dispatches are put into, as into wgpu-py's GPUComputePassEncoder."""

    __slots__ = ("_handle", "_native")

    def __init__(self, native: _Native, handle: Any) -> None:
        self._native, self._handle = native, handle

    def set_pipeline(self, pipeline: Any) -> None:
        self._native.set_pipeline(self._handle, pipeline._internal)

    def set_bind_group(self, index: int, group: Any) -> None:
        self._native.set_bind_group(self._handle, index, group._internal, 0, self._native.null)

    def dispatch_workgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        self._native.dispatch(self._handle, x, y, z)


def run_pass(device: Any, encode: Callable[[Any], None]) -> None:
    """Submit a pass of its own to wgpu-py's device; `encode` puts pipelines, groups and dispatches into it.

    Raises what wgpu-py raises.
    """
    known = native_functions()
    if known is None:
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        encode(compute)
        compute.end()
        device.queue.submit([encoder.finish()])
        return
    encoder = known.create(device._internal, known.null)
    try:
        compute = known.begin(encoder, known.null)
        try:
            encode(_Pass(known, compute))
            known.end(compute)
        finally:
            known.release_pass(compute)
        commands = known.finish(encoder, known.null)
    finally:
        known.release_encoder(encoder)
    try:
        known.submit(device.queue._internal, 1, known.array_of(commands))
    finally:
        known.release_commands(commands)
