"""The C types that wgpu-py names to cffi, parsed at once.

cffi parses a type by its name when it is first asked for it, each behind the 430 types that wgpu's header
declares: 10 ms of Python. Opening a device, a call and reading its result ask for forty.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

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


def foresee(ffi: Any) -> None:
    """Have cffi know the types. Another cffi, or wgpu with other types, has each wait for its turn."""
    known = getattr(ffi, "_parsed_types", None)
    if not isinstance(known, dict):
        return
    # As what one function takes: pointers to them, since an array would become one, and to functions.
    taken = [name.replace("(", "(*)(", 1) for name in _FUNCTIONS] + [
        name.replace("[]", "(*)[]") if name.endswith("[]") else f"{name}*" for name in _OTHERS
    ]
    with suppress(Exception):  # cffi's errors for what it cannot parse have no common kind
        types = ffi.typeof(f"void(*)({', '.join(taken)})").args
        functions, others = types[: len(_FUNCTIONS)], types[len(_FUNCTIONS) :]
        for name, one in zip(_FUNCTIONS, functions, strict=True):
            known.setdefault(name, (one, True))
        for name, one in zip(_OTHERS, others, strict=True):
            known.setdefault(name, (one.item, False))
