"""The parts of a record, and the folder from which its page is served."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.web import models, packages, tinygrad_wgsl
from webnorm.web.folder import Files
from webnorm.web.package.npm import package_files
from webnorm.web.package.request import request_for
from webnorm.web.pages import page_files

EPS = 1e-5
MEANS = (0, 100, 1_000, 10_000, 1_000_000)
SHAPES = ((256, 768), (64, 1023))
OPS_SHOWN = ("layer_norm", "rms_norm")
DTYPES = ("float32", "float16")
# Rows on a software adapter, rows on a GPU, and columns. The first problem fits a cache; the others have five
# times a large cache.
_TIMED = (
    ("layer_norm", "float32", 256, 256, 768),
    ("layer_norm", "float32", 512, 65536, 1024),
    ("rms_norm", "float32", 512, 65536, 1024),
    ("layer_norm", "float16", 512, 65536, 1024),
)
# Exports for the table of abilities, by name: op, storage type, options.
_TRIED = {
    "layer_norm-bfloat16": ("layer_norm", "bfloat16", ()),
    "float8": ("layer_norm", "float32", ("out_dtype=float8_e4m3fn",)),
    "residual": ("layer_norm", "float32", ("residual",)),
    "layer_norm_backward": ("layer_norm_backward", "float32", ()),
}
_PAGE = Path(__file__).with_name("page")


@dataclass(frozen=True)
class WebLibrary:
    """A contender: its module in the page, and the package whose version is recorded."""

    name: str
    module: str
    package: str | None = None
    settings: tuple[str, ...] = ()


LIBRARIES = (
    WebLibrary("webnorm", "webnorm"),
    WebLibrary("onnxruntime-web", "ort", "onnxruntime-web"),
    WebLibrary("tfjs moments", "tfjs", "@tensorflow/tfjs-backend-webgpu"),
    WebLibrary("jax-js composed", "jax", "@jax-js/jax"),
    WebLibrary("jax-js nn.standardize", "jax", "@jax-js/jax", ("standardize",)),
    WebLibrary("tinygrad", "tinygrad", "tinygrad"),
)


def accuracy_parts() -> list[dict[str, Any]]:
    """Return the accuracy parts: every op, storage type and shape, at every mean."""
    return [
        {"kind": "accuracy", "op": op, "dtype": dtype, "rows": rows, "cols": cols, "means": list(MEANS)}
        for op in OPS_SHOWN
        for dtype in DTYPES
        for rows, cols in SHAPES
    ]


def other_parts() -> list[dict[str, Any]]:
    """Return the parts for times, then the one for abilities."""
    timed = [
        {"kind": "times", "op": op, "dtype": dtype, "rows": rows, "gpu_rows": gpu_rows, "cols": cols}
        for op, dtype, rows, gpu_rows, cols in _TIMED
    ]
    rows, cols = SHAPES[0]
    return [*timed, {"kind": "abilities", "rows": rows, "cols": cols}]


def text(part: dict[str, Any]) -> str:
    """Return the name of a part for progress messages."""
    words = [part["kind"], part.get("op"), part.get("dtype")]
    rows = f"{part['rows']} x {part['cols']}" if "rows" in part else None
    return " ".join(word for word in (*words, rows) if word)


def folder(
    parts: list[dict[str, Any]],
    names: Sequence[str],
    node_modules: Path,
    say: Callable[[str], None],
) -> Files:
    """Return the files that the page loads for these parts and libraries, by path."""
    libraries = [one for one in LIBRARIES if one.name in names]
    missing = {"ort": models.available(), "tinygrad": tinygrad_wgsl.available()}
    described = [_described(one, missing.get(one.module)) for one in libraries]
    files = page_files("lab") | {"package.json": b'{"type": "module"}'}
    for path in sorted(_PAGE.rglob("*.*")):
        name = path.relative_to(_PAGE).as_posix()
        files[name if name == "index.html" else f"bench/{name}"] = path.read_bytes()
    files |= packages.files(node_modules)
    if not missing["ort"]:
        files |= models.models(EPS)
    if not missing["tinygrad"] and any(one.module == "tinygrad" for one in libraries):
        say("rendering tinygrad's WGSL")
        files["tinygrad.json"] = json.dumps(tinygrad_wgsl.rendered(_programs(parts), EPS)).encode()
    files |= _exports(parts, say)
    plan = {"eps": EPS, "libraries": described, "parts": parts}
    return files | {"plan.json": json.dumps(plan).encode()}


def _described(library: WebLibrary, why: str | None) -> dict[str, Any]:
    settings: dict[str, Any] = dict.fromkeys(library.settings, True)
    if why:
        settings["why"] = why
    return {"name": library.name, "module": library.module, "settings": settings}


def _programs(parts: list[dict[str, Any]]) -> list[str]:
    """Return the names of the programs for tinygrad, one per shape."""
    found = []
    for part in parts:
        ops = [part["op"]] if "op" in part else OPS_SHOWN
        dtypes = [part["dtype"]] if "dtype" in part else ["float32", "float16", "bfloat16"]
        for rows in {part["rows"], part.get("gpu_rows", part["rows"])}:
            found += [f"{op}-{dtype}-{rows}x{part['cols']}" for op in ops for dtype in dtypes]
    return list(dict.fromkeys(found))


def _exports(parts: list[dict[str, Any]], say: Callable[[str], None]) -> Files:
    """Return webnorm's packages, as `webnorm export` writes them."""
    norms = {(part["op"], part["dtype"]) for part in parts if "op" in part}
    wanted: dict[str, tuple[str, str, tuple[str, ...]]] = {
        f"{op}-{dtype}": (op, dtype, ()) for op, dtype in sorted(norms)
    }
    cols = sorted({part["cols"] for part in parts})
    if any(part["kind"] == "abilities" for part in parts):
        wanted |= {f"{op}-{dtype}": (op, dtype, ()) for op in OPS_SHOWN for dtype in DTYPES} | _TRIED
    files: Files = {}
    for name, (op, dtype, options) in wanted.items():
        say(f"exporting {name}")
        settings = {"--dtype": dtype, "--eps": EPS, "--scale": None, "--name": None, "--minify": None}
        request = request_for(op, cols, options, "auto", (), settings)
        files |= {f"exports/{name}/{path}": content for path, content in package_files(request).items()}
    return files
