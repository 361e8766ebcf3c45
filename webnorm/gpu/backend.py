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
from typing import TYPE_CHECKING, Any, Literal

from webnorm import system
from webnorm.errors import WebnormError, unknown

if TYPE_CHECKING:
    from webnorm.kernels.rendering.render import Target

Backend = Literal["wgpu", "dawn"]
BACKENDS: tuple[Backend, ...] = ("wgpu", "dawn")
# Names the backend, for `--backend`, worker processes and Python.
BACKEND_VARIABLE = "WEBNORM_BACKEND"
# The Python package of Dawn. It has the interface of wgpu-py.
DAWN_PACKAGE = "wgpudawn"
_NEEDED_BY = "the backend dawn"


def check_backend(name: str, source: str) -> Backend:
    """Return a backend's name; raise WebnormError if it is unknown or cannot be imported."""
    found = next((one for one in BACKENDS if one == name), None)
    if found is None:
        raise unknown(source, name, BACKENDS)
    if found == "dawn":
        _dawn()
    return found


def _dawn() -> Any:
    return system.library(DAWN_PACKAGE, _NEEDED_BY, DAWN_PACKAGE, "install_as_wgpu", "__version__")


def _chosen() -> Backend:
    """Return the backend of this process, and let `wgpu` mean wgpudawn if it is Dawn.

    A program that has called wgpudawn.install_as_wgpu() itself has chosen Dawn.
    """
    imported = sys.modules.get("wgpu")
    loaded = None if imported is None else "dawn" if hasattr(imported, "wgpu_py_version") else "wgpu"
    wanted = check_backend(os.environ.get(BACKEND_VARIABLE) or loaded or "wgpu", BACKEND_VARIABLE)
    if loaded is not None and loaded != wanted:
        remedy = {
            "dawn": "call wgpudawn.install_as_wgpu() before the first `import wgpu`",
            "wgpu": "do not call wgpudawn.install_as_wgpu()",
        }[wanted]
        raise WebnormError(
            f"{BACKEND_VARIABLE} is {wanted}, but this process has imported {loaded} as `wgpu`; {remedy}"
        )
    if wanted == "dawn":
        _dawn().install_as_wgpu()
    return wanted


# wgpu prints a warning when this is unset, although webnorm never opens a window.
if "XDG_RUNTIME_DIR" not in os.environ:
    # On a full disk no temporary folder is usable, but much of webnorm needs none.
    with suppress(OSError):
        os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()

BACKEND = _chosen()
IS_DAWN = BACKEND == "dawn"
# Dawn's compiler is Tint, the compiler of Chromium; wgpu's is naga.
TARGET: Target = "browser" if IS_DAWN else "native"

import wgpu as wgpu  # noqa: E402 (wgpudawn has to take the name first)


def request_dawn_device(adapter: Any, features: Sequence[str], limits: Mapping[str, int]) -> Any:
    """Request a device from an adapter of Dawn, with exact timestamps.

    Dawn rounds timestamps to 65,536 ns unless it is told not to, because pages must not measure time exactly.
    """
    extras = system.library(f"{DAWN_PACKAGE}.backends.dawn.extras", _NEEDED_BY, DAWN_PACKAGE)
    rounding = [name for name in extras.all_toggles() if name == "timestamp_quantization"]
    return extras.request_device_sync(
        adapter, required_features=features, required_limits=limits, disable_toggles=rounding
    )


def version() -> str:
    """Return the version of wgpu-py, or "dawn" and the version of wgpudawn."""
    return f"{BACKEND} {_dawn().__version__}" if IS_DAWN else wgpu.__version__
