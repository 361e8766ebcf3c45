"""The implementation of WebGPU that this process uses: wgpu, or Dawn through wgpudawn.

All other modules import `wgpu` from here. $WEBNORM_BACKEND decides when this module is imported, because
wgpudawn takes the name `wgpu` before anything imports wgpu-py.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from webnorm.errors import WebnormError
from webnorm.gpu.backend_names import BACKEND_VARIABLE, Backend, dawn_module, requested_backend
from webnorm.system import dawn_drivers

if TYPE_CHECKING:
    from webnorm.kernels.rendering.render import Target


def _chosen() -> Backend:
    """Return the backend of this process, and let `wgpu` mean wgpudawn if it is Dawn.

    A program that has called wgpudawn.install_as_wgpu() itself has chosen Dawn.
    """
    imported = sys.modules.get("wgpu")
    there: Backend | None = None
    if imported is not None:
        there = "dawn" if hasattr(imported, "wgpu_py_version") else "wgpu"
    wanted = requested_backend() or there or "wgpu"
    if there is not None and there != wanted:
        remedy = {
            "dawn": "call wgpudawn.install_as_wgpu() before the first `import wgpu`",
            "wgpu": "leave out wgpudawn.install_as_wgpu()",
        }[wanted]
        raise WebnormError(
            f"{BACKEND_VARIABLE} is {wanted}, but this program has imported {there} as `wgpu`; {remedy}"
        )
    if wanted == "dawn":
        os.environ.update(dawn_drivers())
        dawn_module("", "install_as_wgpu").install_as_wgpu()
    return wanted


# wgpu prints a warning when this is unset, although webnorm never opens a window.
if "XDG_RUNTIME_DIR" not in os.environ:
    # On a full disk no temporary folder is usable, but much of webnorm needs none.
    with suppress(OSError):
        os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()

IS_DAWN = _chosen() == "dawn"
# Dawn's compiler is Tint, as in Chrome; wgpu's is naga.
TARGET: Target = "browser" if IS_DAWN else "native"
# WGSL's language features that the backend's compiler accepts. wgpu-py and wgpudawn have the attribute
# `wgsl_language_features`, but it is always empty; a test compares these with the compiler.
_SHARED_FEATURES = {
    "packed_4x8_integer_dot_product",
    "pointer_composite_access",
    "readonly_and_readwrite_storage_textures",
}
_DAWN_FEATURES = {
    "buffer_view",
    "immediate_address_space",
    "linear_indexing",
    "subgroup_id",
    "subgroup_uniformity",
    "swizzle_assignment",
    "texture_and_sampler_let",
    "texture_formats_tier1",
    "uniform_buffer_standard_layout",
    "unrestricted_pointer_parameters",
}
LANGUAGE_FEATURES = frozenset(_SHARED_FEATURES | _DAWN_FEATURES if IS_DAWN else _SHARED_FEATURES)

import wgpu as wgpu  # noqa: E402  wgpudawn has to take the name first


def request_dawn_device(
    adapter: Any, features: Sequence[str], limits: Mapping[str, int], enabled: Sequence[str] = ()
) -> Any:
    """Request a device from an adapter of Dawn, with exact timestamps and these toggles enabled.

    By default Dawn rounds timestamps to 65,536 ns, because pages must not measure time exactly.
    """
    extras = dawn_module(".backends.dawn.extras")
    rounding = [name for name in extras.all_toggles() if name == "timestamp_quantization"]
    return extras.request_device_sync(
        adapter,
        required_features=features,
        required_limits=limits,
        enable_toggles=enabled,
        disable_toggles=rounding,
    )


def version() -> str:
    """Return the version of wgpu-py, or "dawn" and the version of wgpudawn."""
    return f"dawn {dawn_module().__version__}" if IS_DAWN else str(wgpu.__version__)
