"""Exports: the npm package of an op, and the lab as a static site."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from webnorm._version import __version__
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device, adapters, open_device
from webnorm.lab.worker import TaskFailed, Worker, WorkerDied
from webnorm.norms.ops import OPS
from webnorm.norms.problem import DTYPES, FP8
from webnorm.web.bundle import Bundle, automatic, carry, named, opening_comment
from webnorm.web.folder import MANIFEST, Files
from webnorm.web.native import try_natively
from webnorm.web.pages import as_json, page_files, rendered
from webnorm.web.request import Request, request_for
from webnorm.web.vectors import TestVector, draw

Update = Callable[[str, float], None]
# Where every browser has a type of its own; of others the bits travel.
_OWN_ARRAYS = {"float32": "Float32Array", "int8": "Int8Array"}
# What only people read, or only verify.html, is left out of index.js.
_FOR_PEOPLE = (
    "command",
    "webnorm",
    "summary",
    "differs",
    "rung",
    "file",
    "sha256",
    "embedded_sha256",
    "wgsl",
    "native",
    "accuracy",
)


def silent(doing: str, share: float) -> None:
    """Tell nobody what is done."""


def bundle_of(request: Request) -> Bundle:
    """The shaders and the manifest; raises WebnormError for what cannot be exported."""
    if request.op.exact:
        raise WebnormError(f"{request.op.name} only measures; expected a norm or its gradient")
    kernel = request.kernel
    if kernel is not None and kernel.unstable is not None:
        raise WebnormError(f"kernel {kernel.name} is not exported: it is unstable ({kernel.unstable})")
    if kernel is not None and kernel.op != request.op:
        raise WebnormError(
            f"kernel {kernel.name} computes {kernel.op.name}; expected one of {request.op.name}"
        )
    chooser = automatic(request.kernels) if kernel is None else named(kernel)
    opening = opening_comment(request.command)
    return Bundle(
        name=_package_name(request),
        op=request.op,
        problem=request.problem(request.cols[0]),
        cols=request.cols,
        command=request.command,
        carried=tuple(
            one
            for cols in request.cols
            for one in carry(
                request.problem(cols), chooser, opening, roots=request.roots, minify=request.minify
            )
        ),
    )


def package(request: Request, update: Update = silent) -> Files:
    """The files of the package by their path in it. `update` hears what is done, and which share of it is."""
    update("shaders", 0.0)
    bundle = bundle_of(request)
    vectors = _vectors(request)
    manifest = bundle.manifest()
    for at, (entry, found) in enumerate(
        zip(manifest["shaders"], _native_entries(request, bundle, vectors), strict=True)
    ):
        update(f"{entry['name']}, natively", 0.3 + 0.7 * at / len(bundle.carried))
        entry["native"] = found
    encoded = {vector.file: vector.encoded() for vector in vectors}
    manifest["vectors"] = [_vector_entry(vector, encoded[vector.file]) for vector in vectors]
    context = _context(bundle, manifest)
    files = {name: rendered(f"{name}.jinja", context) for name in ("index.js", "index.d.ts", "README.md")}
    files["package.json"] = _package_json(manifest)
    files |= {f"shaders/{one.name}.wgsl": one.text.encode() for one in bundle.carried}
    files |= encoded | page_files("verify")
    manifest["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files[MANIFEST] = as_json(manifest)
    return files


def _package_name(request: Request) -> str:
    name = f"webnorm-{request.op.name.replace('_', '-')}" if request.name is None else request.name
    # npm's rules for names ("package.json", name).
    if len(name) > 214 or not re.fullmatch(r"(?:@[a-z0-9-~][a-z0-9-._~]*/)?[a-z0-9-~][a-z0-9-._~]*", name):
        raise WebnormError(
            f"--name is {name!r}; expected a name that npm takes: lower-case letters, digits, - . _ ~, "
            "such as my-norm or @scope/my-norm"
        )
    return name


def _vectors(request: Request) -> list[TestVector]:
    return [vector for cols in request.cols for vector in draw(request.op, request.problem(cols))]


def _native_entries(
    request: Request, bundle: Bundle, vectors: Sequence[TestVector]
) -> Iterator[dict[str, Any]]:
    """What each shader does natively; in a process of its own where a text may be foreign."""
    if not adapters():
        yield from ({"reason": "no WebGPU adapter where this was exported"} for _ in bundle.carried)
    elif request.foreign:
        try:
            with Worker() as worker:
                yield from worker.stream(try_in_worker, request.words)
        except (WorkerDied, TaskFailed) as death:
            raise WebnormError(f"{bundle.name}: running it natively failed: {death}") from death
    else:
        yield from _try_all(open_device(), bundle, vectors)


def try_in_worker(device: Device, words: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """The worker's side: the request is made anew there."""
    request = request_for(*words)
    yield from _try_all(device, bundle_of(request), _vectors(request))


def _try_all(device: Device, bundle: Bundle, vectors: Sequence[TestVector]) -> Iterator[dict[str, Any]]:
    for one in bundle.carried:
        own = [vector for vector in vectors if vector.problem.cols == one.shader.problem.cols]
        yield try_natively(device, one, own)


def _vector_entry(vector: TestVector, encoded: bytes) -> dict[str, Any]:
    return {
        "name": vector.name,
        "file": vector.file,
        "sha256": hashlib.sha256(encoded).hexdigest(),
        "cols": vector.problem.cols,
        "rows": vector.problem.rows,
        "what": vector.what,
    }


def _context(bundle: Bundle, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the templates of the package see."""
    facts = {key: value for key, value in manifest.items() if key not in (*_FOR_PEOPLE, "vectors")}
    facts["shaders"] = [_less(entry) for entry in manifest["shaders"]]
    tensors = manifest["tensors"]
    arrays = {dtype: _array(dtype) for dtype in DTYPES}
    return {
        "manifest": manifest,
        "facts": json.dumps(facts, separators=(",", ":")),
        "texts": {
            name: text.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
            for name, text in bundle.texts.items()
        },
        "summary": bundle.op.summary,
        "create": "create" + "".join(part.capitalize() for part in bundle.op.name.split("_")),
        "tensors": tensors,
        "inputs": [tensor for tensor in tensors if tensor["access"] == "read"],
        "outputs": [tensor for tensor in tensors if tensor["access"] == "write"],
        "arrays": arrays,
        "takes": arrays | {"float16": "Uint16Array | Float16ArrayLike"},
        "dtypes": {tensor["dtype"] for tensor in tensors},
        "contents": _contents(bundle),
        "ones": {dtype: _one(dtype) for dtype in DTYPES},
        "has_scale": bundle.problem.out_dtype in FP8,
        "many_cols": f", {{ cols: {bundle.cols[0]} }}" if len(bundle.cols) > 1 else "",
    }


def _array(dtype: str) -> str:
    """The typed array that JavaScript sees."""
    return _OWN_ARRAYS.get(dtype, f"Uint{8 * DTYPES[dtype].itemsize}Array")


def _one(dtype: str) -> str:
    """A 1 in that array."""
    bits = DTYPES[dtype].type(1).tobytes()
    return "1" if dtype in _OWN_ARRAYS else hex(int.from_bytes(bits, sys.byteorder))


def _contents(bundle: Bundle) -> dict[str, str]:
    """What the columns of a tensor hold, where its name does not say."""
    stats = "the mean in two words whose sum it is, and rstd" if bundle.op.has_mean else "rstd"
    known = {"stats": f": {stats}", "amax": ": of y before it is scaled, and 1 / scale"}
    return {tensor.name: known.get(tensor.name, "") for tensor in bundle.op.tensors}


def _less(entry: Mapping[str, Any]) -> dict[str, Any]:
    short = {key: value for key, value in entry.items() if key not in _FOR_PEOPLE}
    short["bindings"] = [
        {key: value for key, value in binding.items() if key not in _FOR_PEOPLE}
        for binding in entry["bindings"]
    ]
    return short


def _package_json(manifest: Mapping[str, Any]) -> bytes:
    op = OPS[manifest["op"]]
    return as_json(
        {
            "name": manifest["name"],
            "version": __version__,
            "description": f"{op.summary} WebGPU, {manifest['problem']['dtype']}.",
            "license": "MIT",
            "type": "module",
            "sideEffects": False,
            "types": "./index.d.ts",
            "exports": {
                ".": {"types": "./index.d.ts", "default": "./index.js"},
                "./manifest.json": "./manifest.json",
                "./shaders/*": "./shaders/*",
                "./package.json": "./package.json",
            },
            "files": [
                "index.js",
                "index.d.ts",
                "runtime.js",
                "manifest.json",
                "shaders",
                "vectors",
                "verify.html",
                "page",
            ],
            "keywords": ["webgpu", "wgsl", op.name.replace("_", "-")],
        }
    )
