"""The implementation of WebGPU that this process uses: wgpu, or Dawn through wgpudawn.

All other modules import `wgpu` from here. $WEBNORM_BACKEND decides when this module is imported, because
wgpudawn takes the name `wgpu` before anything imports wgpu-py.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

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


def check_backend(name: str, source: str) -> Backend:
    """Return a backend's name; raise WebnormError if it is unknown or cannot be imported."""
    found = next((one for one in BACKENDS if one == name), None)
    if found is None:
        raise unknown(source, name, BACKENDS)
    if found == "dawn":
        system.library(DAWN_PACKAGE, "the backend dawn", DAWN_PACKAGE, "install_as_wgpu")
    return found


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
        system.library(DAWN_PACKAGE, "the backend dawn", DAWN_PACKAGE).install_as_wgpu()
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


def version() -> str:
    """Return the version of wgpu-py, or "dawn" and the version of wgpudawn."""
    return f"dawn {sys.modules[DAWN_PACKAGE].__version__}" if IS_DAWN else wgpu.__version__
