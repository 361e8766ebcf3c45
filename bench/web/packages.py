"""The npm packages that a record is made beside: pinned, and kept in the user's cache folder."""

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
# What the page loads of 220 MB; all else are sources, maps and other builds.
_LOADED = (
    "onnxruntime-web/dist/ort.webgpu.min.mjs",
    "onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.mjs",
    "onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.wasm",
    "@tensorflow/tfjs-core/dist/tf-core.min.js",
    "@tensorflow/tfjs-backend-cpu/dist/tf-backend-cpu.min.js",
    "@tensorflow/tfjs-backend-webgpu/dist/tf-backend-webgpu.min.js",
    "@jax-js/jax/dist/*.js",
)
# npm fetches 60 MB at first.
_TIME_LIMIT_S = 600.0


def versions() -> dict[str, str]:
    """The packages by name, as they are pinned."""
    pinned = json.loads((_PINNED / "package.json").read_text(encoding="utf-8"))
    found: dict[str, str] = pinned["dependencies"]
    return found


def node_modules() -> Path:
    """Where the packages are once they are installed; each choice of versions has a folder of its own."""
    lock = (_PINNED / "package-lock.json").read_bytes()
    return cache_folder(f"beside-{hashlib.sha256(lock).hexdigest()[:12]}") / "node_modules"


def installed(folder: Path) -> bool:
    """Whether everything that the page loads is in a folder node_modules."""
    return _missing(folder) is None


def _missing(folder: Path) -> str | None:
    return next((name for name in _LOADED if not any(folder.glob(name))), None)


def install() -> Path:
    """Have npm fetch the packages where they are missing, each held against its digest in the lock.

    The folder node_modules; WebnormError where there is no npm, or it fails: then nothing is left.
    """
    target = node_modules()
    if installed(target):
        return target
    if shutil.which("npm") is None:
        raise WebnormError("npm is not installed: install Node.js 20 or later, or name --packages FOLDER")
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent.parent) as beside:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_PINNED / name, beside)
        _npm_ci(Path(beside))
        target.parent.mkdir(exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        (Path(beside) / "node_modules").rename(target)
    return target


def _npm_ci(folder: Path) -> None:
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise WebnormError(f"npm was not done within {_TIME_LIMIT_S:g} s: stopped") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("npm error")] or [
            "it says nothing"
        ]
        raise WebnormError(f"npm cannot fetch the packages, which wants a network the first time: {said[-1]}")


def files(folder: Path) -> Files:
    """What the page loads, by its path; WebnormError for a folder that lacks some."""
    if missing := _missing(folder):
        raise WebnormError(f"--packages {folder}: holds no {missing}; expected a folder node_modules")
    return {
        f"node_modules/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for name in _LOADED
        for path in sorted(folder.glob(name))
    }
