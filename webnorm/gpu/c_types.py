"""What wgpu-py has cffi parse, in Python: its header once for all processes, and the types it names at once.

The header takes 0.2 s, most of what it takes a process to open a device. And cffi parses a type by its name
when it is first asked for it, each behind the 430 types that the header declares: 10 ms. Opening a device, a
call and reading its result ask for forty.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import MAGIC_NUMBER
from typing import Any

from webnorm import signals
from webnorm.files import user_cache

_FOLDER = "c"
_FUNCTIONS = (
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
)
_OTHERS = (
    # Adapters and devices.
    *("WGPUInstanceDescriptor *", "WGPUAdapter[]", "WGPUAdapterInfo *", "WGPUChainedStruct *"),
    *("WGPUChainedStruct * ", "WGPUNativeLimits *", "WGPULimits *", "WGPUFeatureName[]"),
    *("WGPUQueueDescriptor *", "WGPUDeviceExtras *", "WGPUDeviceDescriptor *", "char []"),
    *("WGPUDeviceLostCallbackInfo *", "WGPUUncapturedErrorCallbackInfo *"),
    "WGPURequestDeviceCallbackInfo *",
    # Buffers.
    *("WGPUBufferDescriptor *", "WGPUBufferMapCallbackInfo *", "uint8_t []", "uint8_t *"),
    *("uintptr_t", "intptr_t"),
    # Shaders and pipelines.
    *("WGPUShaderSourceWGSL *", "WGPUShaderModuleDescriptor *", "WGPUBufferBindingLayout *"),
    *("WGPUBindGroupLayoutEntry *", "WGPUBindGroupLayoutEntry[]", "WGPUBindGroupLayoutDescriptor *"),
    *("WGPUBindGroupLayout[]", "WGPUPipelineLayoutDescriptor *", "WGPUComputeState *"),
    "WGPUComputePipelineDescriptor *",
    # Commands.
    *("WGPUBindGroupEntry *", "WGPUBindGroupEntry[]", "WGPUBindGroupDescriptor *", "uint32_t []"),
    *("WGPUCommandEncoderDescriptor *", "WGPUComputePassDescriptor *", "WGPUCommandBufferDescriptor *"),
    "WGPUCommandBuffer[]",
)


class _Remembering:
    """A parser of C that takes the trees of texts which it, or another process, parsed before."""

    def __init__(self, parser: Any, version: str) -> None:
        self._parser, self._version = parser, MAGIC_NUMBER + version.encode()

    def parse(self, text: str) -> Any:
        """The tree of a text."""
        key = self._version + text.encode()
        with signals.ignored(Exception):  # of what another pickle left, anything may be raised
            return pickle.loads(user_cache.load(_FOLDER, key) or b"")
        tree = self._parser.parse(text)
        user_cache.store(_FOLDER, key, pickle.dumps(tree))
        return tree


@contextmanager
def cached_declarations() -> Iterator[None]:
    """Have cffi parse nothing, meanwhile, that was parsed before. Another cffi parses as it does."""
    try:
        from cffi import cparser

        parser = cparser._get_parser()
        cparser._parser_cache = _Remembering(parser, cparser.pycparser.__version__)
    except (ImportError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        cparser._parser_cache = parser


def predeclare_types(ffi: Any) -> None:
    """Have cffi know the types. Another cffi, or wgpu with other types, has each wait for its turn."""
    known = getattr(ffi, "_parsed_types", None)
    if not isinstance(known, dict):
        return
    # As what one function takes: pointers to them, since an array would become one, and to functions.
    taken = [name.replace("(", "(*)(", 1) for name in _FUNCTIONS] + [
        name.replace("[]", "(*)[]") if name.endswith("[]") else f"{name}*" for name in _OTHERS
    ]
    with signals.ignored(Exception):  # cffi's errors for what it cannot parse have no common kind
        types = ffi.typeof(f"void(*)({', '.join(taken)})").args
        functions, others = types[: len(_FUNCTIONS)], types[len(_FUNCTIONS) :]
        for name, one in zip(_FUNCTIONS, functions, strict=True):
            known.setdefault(name, (one, True))
        for name, one in zip(_OTHERS, others, strict=True):
            known.setdefault(name, (one.item, False))
