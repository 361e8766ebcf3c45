"""The names of the backends, wgpu and Dawn, for code that must not import either.

Dawn is used through wgpudawn, an optional library with the interface of wgpu-py.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from webnorm import system
from webnorm.errors import unknown

Backend = Literal["wgpu", "dawn"]
BACKENDS: tuple[Backend, ...] = ("wgpu", "dawn")
# Names the backend of a process and of its worker processes.
BACKEND_VARIABLE = "WEBNORM_BACKEND"
# The Python package of Dawn.
DAWN_PACKAGE = "wgpudawn"
_NEEDED_BY = "the backend dawn"


def requested_backend() -> Backend | None:
    """Return the backend that the environment names; None without one. Raises WebnormError as below."""
    name = os.environ.get(BACKEND_VARIABLE)
    return check_backend(name, BACKEND_VARIABLE) if name else None


def check_backend(name: str, source: str) -> Backend:
    """Return a backend's name; raise WebnormError if there is no such backend, or wgpudawn is missing."""
    found = next((one for one in BACKENDS if one == name), None)
    if found is None:
        raise unknown(source, name, BACKENDS)
    if found == "dawn" and not system.is_installed(DAWN_PACKAGE):
        dawn_module()
    return found


def dawn_module(inner: str = "", *names: str) -> Any:
    """Import wgpudawn, or a module in it that has these names; raise WebnormError if that fails."""
    return system.library(f"{DAWN_PACKAGE}{inner}", _NEEDED_BY, DAWN_PACKAGE, *names)


def backend_of(version: str) -> Backend:
    """Return the backend of a device from the entry "wgpu" of its description."""
    return "dawn" if version.startswith("dawn ") else "wgpu"


def backend_text(version: str) -> str:
    """Return the backend with its version, from the entry "wgpu" of a description."""
    # Dawn and engines are named before their version.
    return version if " " in version else f"wgpu {version}"


def dawn_version() -> str | None:
    """Return the version of wgpudawn; None if it is not installed."""
    try:
        return version(DAWN_PACKAGE)
    except PackageNotFoundError:
        return None
