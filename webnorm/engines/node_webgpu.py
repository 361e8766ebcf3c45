"""The npm package webgpu: Dawn and its compiler Tint for node, in the user's cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from webnorm.files.atomic import cache_folder
from webnorm.system import Fix, npm_install

# This version agreed with Chromium 156 on every construct tried. Each version has its own folder.
WEBGPU = "0.6.2"


def tint_folder() -> Path:
    """Return the folder where npm installs the package."""
    return cache_folder(f"webgpu-{WEBGPU}")


def webgpu() -> Path:
    """Return the folder of the package itself."""
    return tint_folder() / "node_modules" / "webgpu"


def is_tint_installed() -> bool:
    """Return whether npm has installed the package; node itself may still be missing."""
    # npm writes this file last.
    return (tint_folder() / "node_modules" / ".package-lock.json").exists()


def tint_fix() -> Fix | None:
    """Return the fix for the first missing part of Tint, or None."""
    for program in ("node",) if is_tint_installed() else ("node", "npm"):
        if shutil.which(program) is None:
            return Fix(f"No Tint: {program} is not installed; install Node.js 20 or later, with npm.")
    if is_tint_installed():
        return None
    command = npm_install(tint_folder(), f"webgpu@{WEBGPU}")
    return Fix(f"No Tint: the npm package webgpu {WEBGPU} is not installed.", (command,))
