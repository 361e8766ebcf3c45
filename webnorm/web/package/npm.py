"""The npm package of an op: its files, and a summary for the command line."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from webnorm._version import __version__
from webnorm.errors import path_argument, shell_word
from webnorm.op import expression
from webnorm.op.dtypes import DTYPES
from webnorm.op.registry import OPS
from webnorm.web.folder import MANIFEST, Files, digests
from webnorm.web.package.bundle import Bundle, bundle_of
from webnorm.web.package.manifest import missing_class_text
from webnorm.web.package.native import native_entries, vectors_of
from webnorm.web.package.request import ExportRequest, Update, no_update
from webnorm.web.pages import json_text, page_files, render_asset

_TYPES = "index.d.ts"
# The code of an app in the README.
_SNIPPET = re.compile(r"^```js\n(.*?)\n```", re.MULTILINE | re.DOTALL)
# The typed arrays that every browser has; other types are passed as their bits.
_OWN_ARRAYS = {
    "float32": "Float32Array",
    "int8": "Int8Array",
    "uint8": "Uint8Array",
    "int32": "Int32Array",
    "uint32": "Uint32Array",
}
# Keys for people and for verify.html, which index.js leaves out.
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
    "absent",
    "loose",
)


def package_files(request: ExportRequest, update: Update = no_update) -> Files:
    """Return the files of the package by their path in it.

    `update` is called with the current action and its progress, from 0 to 1.
    """
    update("rendering the shaders", 0.0)
    bundle = bundle_of(request)
    vectors = vectors_of(request)
    manifest = bundle.manifest()
    entries = manifest["shaders"]
    update(f"running {len(entries)} shaders", 0.3)
    for at, (entry, found) in enumerate(
        zip(entries, native_entries(request, bundle, vectors), strict=True), 1
    ):
        entry["native"] = found
        update(f"{at} of {len(entries)} shaders were run", 0.3 + 0.7 * at / len(entries))
    encoded = {vector.file: vector.encoded() for vector in vectors}
    manifest["vectors"] = [
        {
            "name": vector.name,
            "file": vector.file,
            "sha256": hashlib.sha256(encoded[vector.file]).hexdigest(),
            # cols and rows are names of the manifest's format.
            "cols": 1 if vector.problem.AXIS == vector.problem.BATCH else vector.problem.axis,
            "rows": vector.problem.batch_size,
            "what": vector.what,
        }
        for vector in vectors
    ]
    context = _context(bundle, manifest)
    files = {name: render_asset(f"{name}.jinja", context) for name in ("index.js", _TYPES)}
    found = {
        "faults": _faults(manifest),
        "not_run": _not_run(manifest),
        "absent": missing_class_text(manifest["absent"]),
    }
    files["README.md"] = render_asset("README.md.jinja", {**context, **found})
    files["package.json"] = _package_json(manifest)
    files |= {f"shaders/{one.name}.wgsl": one.text.encode() for one in bundle.shaders}
    files |= encoded | page_files("verify")
    manifest["files"] = digests(files)
    files[MANIFEST] = json_text(manifest)
    return files


def type_declarations(request: ExportRequest) -> bytes:
    """Return the package's index.d.ts, without running any shader."""
    bundle = bundle_of(request)
    return render_asset(f"{_TYPES}.jinja", _context(bundle, bundle.manifest()))


def _context(bundle: Bundle, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables for the templates of the package."""
    facts = {key: value for key, value in manifest.items() if key not in (*_FOR_PEOPLE, "vectors")}
    facts["shaders"] = [_less(entry) for entry in manifest["shaders"]]
    tensors = manifest["tensors"]
    batch, axis = manifest.get("batch", "rows"), manifest.get("axis", "cols")
    create = "".join(part.capitalize() for part in bundle.task.op.name.split("_"))
    # JavaScript's typed array for each type, and the code of the number 1 in it.
    arrays = {name: _OWN_ARRAYS.get(name, f"Uint{8 * kind.itemsize}Array") for name, kind in DTYPES.items()}
    bits = {name: int.from_bytes(kind.type(1).tobytes(), sys.byteorder) for name, kind in DTYPES.items()}
    return {
        "manifest": manifest,
        "facts": json.dumps(facts, separators=(",", ":")),
        "texts": {
            name: text.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
            for name, text in bundle.texts.items()
        },
        "summary": bundle.task.op.summary,
        "create": f"create{create}",
        "tensors": tensors,
        "inputs": [tensor for tensor in tensors if tensor["access"] == "read"],
        "outputs": [tensor for tensor in tensors if tensor["access"] == "write"],
        "arrays": arrays,
        "takes": arrays | {"float16": "Uint16Array | Float16ArrayLike"},
        "dtypes": {tensor["dtype"] for tensor in tensors},
        # The meaning of a tensor's columns, if its name does not explain them.
        "contents": {one.name: f": {one.holds}" if one.holds else "" for one in bundle.task.op.tensors},
        "ones": {name: "1" if name in _OWN_ARRAYS else hex(one) for name, one in bits.items()},
        "numbers": {name: _NUMBERS.get(name, "A scalar of the op") for name in manifest["numbers"]},
        "many_cols": f", {{ {axis}: {bundle.cols[0]} }}" if len(bundle.cols) > 1 else "",
        "batch": batch,
        "axis": axis,
        "sizes": _sizes_text(bundle, axis),
        "norm": "norm" if bundle.task.op.source is None else "op",
        "type": "Norm" if bundle.task.op.source is None else create,
        "lengths": {one["name"]: _length_text(one, batch, axis) for one in tensors},
        "shapes": {one["name"]: _shape_text(one, batch, axis) for one in tensors},
    }


# Descriptions of the norms' scalars.
_NUMBERS = {"eps": "Added to the variance", "scale": "The factor of y before rounding"}


def _sizes_text(bundle: Bundle, axis: str) -> str:
    """Return the sizes and the type of a package, for a sentence after "for"."""
    dtype, values = bundle.task.problem.dtype, ", ".join(map(str, bundle.cols))
    if bundle.task.op.source is None:
        return f"rows of {values} columns stored as {dtype}"
    fixed = [f"{axis} {values}"] if axis else []
    problem = bundle.task.problem
    fixed += [f"{name} {size}" for name, size in problem.sizes.items() if name not in (axis, problem.BATCH)]
    return ", ".join([*fixed, dtype])


def _named(size: Any, batch: str, axis: str) -> Any:
    """Return a dimension with the op's own names of sizes."""
    if isinstance(size, list):
        return [size[0], *(_named(one, batch, axis) for one in size[1:])]
    return {"rows": batch, "cols": axis}.get(size, size) if isinstance(size, str) else size


def _shape_text(tensor: Mapping[str, Any], batch: str, axis: str) -> str:
    return " x ".join(expression.shown(_named(size, batch, axis)) for size in tensor["shape"])


def _length_text(tensor: Mapping[str, Any], batch: str, axis: str) -> str:
    """Return the number of a tensor's elements as a JavaScript expression of the sizes."""
    own = "cols" if axis == "cols" else axis
    parts = (expression.shown(_named(size, batch, own)) for size in tensor["shape"])
    return " * ".join(f"({part})" if " " in part else part for part in parts).replace("//", "/")


def _less(entry: Mapping[str, Any]) -> dict[str, Any]:
    short = {key: value for key, value in entry.items() if key not in _FOR_PEOPLE}
    short["bindings"] = [
        {key: value for key, value in binding.items() if key not in _FOR_PEOPLE}
        for binding in entry["bindings"]
    ]
    return short


def _package_json(manifest: Mapping[str, Any]) -> bytes:
    op = OPS[manifest["op"]]
    return json_text(
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


def package_summary(files: Files, folder: Path) -> str:
    """Return a summary of the written files, and the next steps."""
    size = sum(len(content) for content in files.values())
    what = f"{folder}: {len(files)} files, {size // 1000} kB"
    if MANIFEST not in files:
        return f"{what}; serve it and open index.html"
    manifest = json.loads(files[MANIFEST])
    names = ", ".join(shader["name"] for shader in manifest["shaders"])
    loose = ((shader["name"], shader["loose"]) for shader in manifest["shaders"] if "loose" in shader)
    # Without ./ npm would look for the name in its registry.
    place = folder if folder.is_absolute() else f"./{folder}"
    return "\n".join(
        (
            f"{what}; shaders {names}",
            *(f"Left out: {one}" for one in missing_class_text(manifest["absent"])),
            *(f"Not checked here: {one}" for one in _not_run(manifest)),
            *(f"Warning: {one}" for one in _by_reason(loose)),
            f"Use it in an app: npm install {shell_word(str(place))}",
            *(f"  {line}" for line in _SNIPPET.findall(files["README.md"].decode())[0].split("\n") if line),
            f"Check it in a browser: webnorm verify {shell_word(path_argument(folder))}",
        )
    )


def native_fault(files: Files) -> str | None:
    """Return a sentence with the first shader that is wrong natively and the number of others, or None."""
    manifests = (json.loads(files[name]) for name in files if Path(name).name == MANIFEST)
    faults = [fault for manifest in manifests for fault in _faults(manifest)]
    if not faults:
        return None
    first, *others = faults
    more = f"; {len(others)} of the other shaders {'is' if len(others) == 1 else 'are'} also wrong"
    return f"{first}{more if others else ''}"


def _faults(manifest: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each wrong shader, with its first failing vector."""
    found: list[str] = []
    for shader in manifest["shaders"]:
        native = shader["native"]
        what = f"kernel {shader['kernel']} as {shader['name']} is wrong on {native.get('adapter')}"
        of = f"{shader['cols']} {manifest.get('axis', 'columns')}".rstrip()
        problem = f"{manifest['op']} of {of}, {manifest['problem']['dtype']}"
        vectors = native.get("vectors", {}).items()
        reasons = (
            f"{what}: {problem}, vector {name}: {one['reason']}" for name, one in vectors if "reason" in one
        )
        found += itertools.islice(reasons, 1)
    return found


def _not_run(manifest: Mapping[str, Any]) -> list[str]:
    """Return a line for each reason why shaders were not run natively."""
    natives = ((one["name"], one["native"]) for one in manifest["shaders"])
    return _by_reason(
        (name, native["reason"]) for name, native in natives if native.get("verdict", "skip") == "skip"
    )


def _by_reason(shaders: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, with the names of its shaders."""
    names: dict[str, list[str]] = {}
    for name, reason in shaders:
        names.setdefault(reason, []).append(name)
    return [f"{', '.join(of)}: {reason}" for reason, of in names.items()]
