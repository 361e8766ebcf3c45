"""All uses of private names of wgpu-py and cffi; no other module uses one.

Each use saves time or does something for which the library has no public function. If a name is missing or
has changed, the library works in its usual way. tests/gpu/test_wgpu_private.py removes each name. On Dawn
only `release_nothing` uses one.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import MAGIC_NUMBER
from typing import Any, NamedTuple

from webnorm import signals
from webnorm.files import user_cache
from webnorm.gpu import compute_programs
from webnorm.gpu.backend import IS_DAWN

# --- the C types that wgpu-py has cffi parse
#
# cffi parses in Python. Parsing wgpu's header takes 0.2 s, most of the time to open a device. The first use
# of each type takes another 10 ms, because cffi parses it behind the header's 430 types. Opening a device, a
# call and reading its result use forty types. Without `predeclare_types` the first call of a process takes
# 1.03 s of processor time instead of 0.48 s. cffi has no public function that parses several types at once.

_CACHE_FOLDER = "c"
_FUNCTION_TYPES = (
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
)
_OTHER_TYPES = (
    # Adapters and devices.
    "WGPUInstanceDescriptor *",
    "WGPUAdapter[]",
    "WGPUAdapterInfo *",
    "WGPUChainedStruct *",
    "WGPUChainedStruct * ",
    "WGPUNativeLimits *",
    "WGPULimits *",
    "WGPUFeatureName[]",
    "WGPUQueueDescriptor *",
    "WGPUDeviceExtras *",
    "WGPUDeviceDescriptor *",
    "char []",
    "WGPUDeviceLostCallbackInfo *",
    "WGPUUncapturedErrorCallbackInfo *",
    "WGPURequestDeviceCallbackInfo *",
    # Buffers.
    "WGPUBufferDescriptor *",
    "WGPUBufferMapCallbackInfo *",
    "uint8_t []",
    "uint8_t *",
    "uintptr_t",
    "intptr_t",
    # Shaders and pipelines.
    "WGPUShaderSourceWGSL *",
    "WGPUShaderModuleDescriptor *",
    "WGPUBufferBindingLayout *",
    "WGPUBindGroupLayoutEntry *",
    "WGPUBindGroupLayoutEntry[]",
    "WGPUBindGroupLayoutDescriptor *",
    "WGPUBindGroupLayout[]",
    "WGPUPipelineLayoutDescriptor *",
    "WGPUComputeState *",
    "WGPUComputePipelineDescriptor *",
    # Commands.
    "WGPUBindGroupEntry *",
    "WGPUBindGroupEntry[]",
    "WGPUBindGroupDescriptor *",
    "uint32_t []",
    "WGPUCommandEncoderDescriptor *",
    "WGPUComputePassDescriptor *",
    "WGPUCommandBufferDescriptor *",
    "WGPUCommandBuffer[]",
)


class _CachingParser:
    """A C parser that caches the syntax trees of texts, for this and other processes."""

    def __init__(self, parser: Any, version: str) -> None:
        self._parser, self._version = parser, MAGIC_NUMBER + version.encode()

    def parse(self, text: str) -> Any:
        """Return the syntax tree of a text."""
        key = self._version + text.encode()
        with signals.ignored(Exception):  # loading another version's pickle may raise anything
            return pickle.loads(user_cache.load(_CACHE_FOLDER, key) or b"")
        tree = self._parser.parse(text)
        user_cache.store(_CACHE_FOLDER, key, pickle.dumps(tree))
        return tree


@contextmanager
def cached_declarations() -> Iterator[None]:
    """Let cffi use cached syntax trees within this context. An unknown version of cffi parses as usual."""
    try:
        from cffi import cparser

        parser = cparser._get_parser()
        cparser._parser_cache = _CachingParser(parser, cparser.pycparser.__version__)
    except (ImportError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        cparser._parser_cache = parser


def predeclare_types(ffi: Any) -> None:
    """Parse all types at once. With an unknown version of cffi or wgpu each is parsed when it is used."""
    known = getattr(ffi, "_parsed_types", None)
    if not isinstance(known, dict):
        return
    # The types become the parameters of one function. They are pointers, because a parameter cannot be an
    # array or a function.
    taken = [name.replace("(", "(*)(", 1) for name in _FUNCTION_TYPES] + [
        name.replace("[]", "(*)[]") if name.endswith("[]") else f"{name}*" for name in _OTHER_TYPES
    ]
    together = f"void(*)({', '.join(taken)})"
    with signals.ignored(Exception):  # cffi's parse errors have no common base class
        function = ffi.typeof(together)
        if known.get(together) != (function, False):  # this cffi stores entries in another form
            return
        functions, others = function.args[: len(_FUNCTION_TYPES)], function.args[len(_FUNCTION_TYPES) :]
        for name, one in zip(_FUNCTION_TYPES, functions, strict=True):
            known.setdefault(name, (one, True))
        for name, one in zip(_OTHER_TYPES, others, strict=True):
            known.setdefault(name, (one.item, False))


# --- a compute pass without wgpu-py's objects
#
# wgpu-py's objects take half of the time of a call. This code calls the functions that they call: wgpu-py's
# wrappers of wgpu-native, which raise wgpu-py's errors.

_PASS = "struct WGPUComputePassEncoderImpl *"
_ENCODER = "struct WGPUCommandEncoderImpl *"
_COMMANDS = "struct WGPUCommandBufferImpl *"
_SIGNATURES = {
    "DeviceCreateCommandEncoder": f"{_ENCODER}(*)(struct WGPUDeviceImpl *, WGPUCommandEncoderDescriptor *)",
    "CommandEncoderBeginComputePass": f"{_PASS}(*)({_ENCODER}, WGPUComputePassDescriptor *)",
    "ComputePassEncoderSetPipeline": f"void(*)({_PASS}, struct WGPUComputePipelineImpl *)",
    "ComputePassEncoderSetBindGroup": (
        f"void(*)({_PASS}, uint32_t, struct WGPUBindGroupImpl *, size_t, uint32_t *)"
    ),
    "ComputePassEncoderSetImmediates": f"void(*)({_PASS}, uint32_t, void *, size_t)",
    "ComputePassEncoderDispatchWorkgroups": f"void(*)({_PASS}, uint32_t, uint32_t, uint32_t)",
    "ComputePassEncoderEnd": f"void(*)({_PASS})",
    "ComputePassEncoderRelease": f"void(*)({_PASS})",
    "CommandEncoderFinish": f"{_COMMANDS}(*)({_ENCODER}, WGPUCommandBufferDescriptor *)",
    "CommandEncoderRelease": f"void(*)({_ENCODER})",
    "QueueSubmit": f"void(*)(struct WGPUQueueImpl *, size_t, {_COMMANDS} *)",
    "CommandBufferRelease": f"void(*)({_COMMANDS})",
}


class _Native(NamedTuple):
    """The functions of `_SIGNATURES`, C's null pointer, and functions that make C's arrays.

    `array_of` makes an array of one command, and `bytes_of` refers to the bytes of an array of NumPy.
    """

    create: Callable[..., Any]
    begin: Callable[..., Any]
    set_pipeline: Callable[..., Any]
    set_bind_group: Callable[..., Any]
    set_immediates: Callable[..., Any]
    dispatch: Callable[..., Any]
    end: Callable[..., Any]
    release_pass: Callable[..., Any]
    finish: Callable[..., Any]
    release_encoder: Callable[..., Any]
    submit: Callable[..., Any]
    release_commands: Callable[..., Any]
    null: Any
    array_of: Callable[[Any], Any]
    bytes_of: Callable[[Any], Any]


@cache
def native_functions() -> _Native | None:
    """Return wgpu-native's functions; None on Dawn, and if their signatures differ from the known ones."""
    if IS_DAWN:
        return None
    names = [f"wgpu{name}" for name in _SIGNATURES]
    try:
        from wgpu.backends.wgpu_native import _api, ffi, lib

        types = [ffi.typeof(getattr(lib, name)).cname for name in names]
        functions = [getattr(_api.libf, name) for name in names]
        array = ffi.typeof("WGPUCommandBuffer[]")
    except Exception as error:  # an unknown version of wgpu-py or cffi may raise anything
        signals.let_through(error)
        return None
    if types != [*_SIGNATURES.values()]:
        return None
    return _Native._make([*functions, ffi.NULL, lambda commands: ffi.new(array, [commands]), ffi.from_buffer])


class _Pass:
    """A compute pass with the interface of wgpu-py's GPUComputePassEncoder."""

    __slots__ = ("_handle", "_native")

    def __init__(self, native: _Native, handle: Any) -> None:
        self._native, self._handle = native, handle

    def set_pipeline(self, pipeline: Any) -> None:
        self._native.set_pipeline(self._handle, pipeline._internal)

    def set_bind_group(self, index: int, group: Any) -> None:
        self._native.set_bind_group(self._handle, index, group._internal, 0, self._native.null)

    def set_immediates(self, offset: int, data: Any, data_offset: int, data_size: int) -> None:
        self._native.set_immediates(
            self._handle, offset, self._native.bytes_of(data) + data_offset, data_size
        )

    def dispatch_workgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        self._native.dispatch(self._handle, x, y, z)


def run_pass(device: Any, encode: Callable[[Any], None]) -> None:
    """Submit one compute pass to wgpu-py's device; `encode` adds pipelines, bind groups and dispatches.

    Raises the same errors as wgpu-py.
    """
    known = native_functions() if hasattr(device, "_internal") else None
    if known is None:
        return compute_programs.run_pass(device, encode)
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


# --- functions that wgpu-py does not offer publicly


def timestamp_period(device: Any) -> float:
    """Return the nanoseconds per timestamp tick of wgpu-py's device; 0.0 if wgpu-native cannot say."""
    try:
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))
    except (ImportError, AttributeError):
        return 0.0


def poll_only_when_asked(device: Any) -> None:
    """Keep wgpu-py's thread from polling its device when no operation is pending.

    wgpu-py 0.32 polls once more when its thread wakes up late. Through OpenGL such a poll waits for another
    device or for a compilation. wgpu-hal 29 takes a wait of 6 s for a deadlock and aborts.
    """
    poller: Any = getattr(device, "_poller", None)
    if hasattr(poller, "_poll_func") and hasattr(poller, "_token_ids"):
        poll, waiting = poller._poll_func, poller._token_ids
        poller._poll_func = lambda block: poll(block) if waiting else None


def release_nothing(devices: Iterable[Any]) -> None:
    """Keep wgpu-py in a forked process from releasing the parent's objects.

    A release would wait for threads that do not exist in the child, and for locks that they had. Without its
    library, wgpu-py releases nothing, as at the end of an interpreter.
    """
    for device in devices:
        device._poller = None
    api: Any = sys.modules.get("wgpudawn.backends.dawn._api" if IS_DAWN else "wgpu.backends.wgpu_native._api")
    if api is not None:
        api.libf = None
