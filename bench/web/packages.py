"""The npm packages of a record: pinned versions in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from webnorm.errors import WebnormError
from webnorm.files.atomic import cache_folder
from webnorm.web.folder import Files

_PINNED = Path(__file__).with_name("npm")
# The files that the page loads. The rest of 220 MB are sources, maps and other builds.
_LOADED = (
    "onnxruntime-web/dist/ort.webgpu.min.mjs",
    "onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.mjs",
    "onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.wasm",
    "@tensorflow/tfjs-core/dist/tf-core.min.js",
    "@tensorflow/tfjs-backend-cpu/dist/tf-backend-cpu.min.js",
    "@tensorflow/tfjs-backend-webgpu/dist/tf-backend-webgpu.min.js",
    "@jax-js/jax/dist/*.js",
)
# The first run of npm fetches 60 MB.
_TIME_LIMIT_S = 600.0


def versions() -> dict[str, str]:
    """Return the pinned versions by package name."""
    pinned = json.loads((_PINNED / "package.json").read_text(encoding="utf-8"))
    found: dict[str, str] = pinned["dependencies"]
    return found


def node_modules() -> Path:
    """Return the folder of the installed packages; each set of versions has its own."""
    lock = (_PINNED / "package-lock.json").read_bytes()
    return cache_folder(f"compared-{hashlib.sha256(lock).hexdigest()[:12]}") / "node_modules"


def installed(folder: Path) -> bool:
    """Return True if a folder node_modules has all files that the page loads."""
    return _missing(folder) is None


def _missing(folder: Path) -> str | None:
    return next((name for name in _LOADED if not any(folder.glob(name))), None)


def install() -> Path:
    """Let npm fetch missing packages, check their digests, and return the folder node_modules.

    Raises WebnormError if npm is missing or fails; then no files are left behind.
    """
    target = node_modules()
    if installed(target):
        return target
    if shutil.which("npm") is None:
        raise WebnormError("npm is not installed: install Node.js 20 or later, or give --packages FOLDER")
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent.parent) as temporary:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_PINNED / name, temporary)
        _npm_ci(Path(temporary))
        target.parent.mkdir(exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        (Path(temporary) / "node_modules").rename(target)
    return target


def _npm_ci(folder: Path) -> None:
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise WebnormError(
            f"npm did not finish within {_TIME_LIMIT_S:g} s and was stopped; check the network"
        ) from None
    if done.returncode != 0:
        messages = [line for line in done.stderr.splitlines() if line.startswith("npm error")] or [
            "no message"
        ]
        raise WebnormError(
            f"npm cannot fetch the packages, which needs a network the first time: {messages[-1]}"
        )


def files(folder: Path) -> Files:
    """Return the files that the page loads, by path; WebnormError if one is missing."""
    if missing := _missing(folder):
        raise WebnormError(f"--packages {folder}: {missing} is missing; expected a folder node_modules")
    return {
        f"node_modules/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for name in _LOADED
        for path in sorted(folder.glob(name))
    }
