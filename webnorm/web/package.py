"""An exported package that is read back: its files have to be what its manifest says."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnorm import files
from webnorm.errors import WebnormError
from webnorm.web import tint
from webnorm.web.browser import PAGE
from webnorm.web.bundle import SCHEMA
from webnorm.web.folder import MANIFEST

_AGAIN = "export again"
# JSON has no infinity; webnorm writes such a number as a string.
NUMBER = (int, float, str, type(None))
TEXT = (str, type(None))
_VERDICTS = ("pass", "fail", "skip")


_KINDS = {
    bool: "true or false",
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    float: "a number",
    type(None): "null",
}


# What is used of a manifest and of a page's report: a dict names keys, a list has items of one form.
_MANIFEST = {
    "op": str,
    "has_mean": bool,
    "problem": {"dtype": str, "eps": NUMBER, "options": dict},
    "tensors": [{"name": str, "access": str, "dtype": str, "shape": list}],
    "files": dict,
    "cols": [int],
    "shaders": [
        {
            "name": str,
            "file": str,
            "sha256": str,
            "embedded_sha256": str,
            "cols": int,
            "features": [str],
            "limits": dict,
            "bindings": [{"binding": int, "type": str}],
            "overrides": dict,
            "passes": [{"entry_point": str, "bindings": [int]}],
            "native": dict,
        }
    ],
    "vectors": [{"name": str, "file": str, "sha256": str, "cols": int, "rows": int}],
}


_NATIVE = {"verdict": str, "max_abs_error": NUMBER, "vectors": dict}


@dataclass(frozen=True)
class Package:
    """An export whose files are what its manifest says."""

    folder: Path
    manifest: Mapping[str, Any]
    texts: Mapping[str, str]
    """WGSL by shader name, as index.js has it; none where node is missing, which loads it."""

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were read."""
        names = {MANIFEST, "index.js", PAGE, *self.manifest["files"]}
        return [self.folder / name for name in (*names, *(one["file"] for one in _with_files(self.manifest)))]

    @property
    def shaders(self) -> Sequence[Mapping[str, Any]]:
        """The manifest's entries, in order of preference."""
        entries: Sequence[Mapping[str, Any]] = self.manifest["shaders"]
        return entries


def read_package(folder: Path) -> Package:
    """Read an export; WebnormError if a file is missing or is not what `webnorm export` wrote."""
    manifest = _read_manifest(folder)
    expected = {**manifest["files"], **{one["file"]: one["sha256"] for one in _with_files(manifest)}}
    for name, digest in expected.items():
        path = folder / name
        if not files.lies_in(path, folder):
            raise WebnormError(f"{folder / MANIFEST}: {name!r} lies outside of the folder; {_AGAIN}")
        found = hashlib.sha256(_read(path)).hexdigest()
        if found != digest:
            raise _damaged(path, found, str(digest))
    for path in (folder / "index.js", folder / PAGE):
        _keep_inside(path, folder)
        _read(path)
    return Package(folder, manifest, _texts(folder / "index.js", manifest) if shutil.which("node") else {})


def _texts(index: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """The shaders that an index.js exports; WebnormError unless they are those of the manifest."""
    if not _in_utf8(files.absolute(index), files.resolved(index)):
        raise WebnormError(
            f"{index.parent}: its path is not UTF-8, and node loads nothing from there; "
            "expected a package in a folder whose name is"
        )
    try:
        texts: dict[str, str] = tint.run_node("texts.mjs", index)
    except WebnormError as error:
        raise WebnormError(f"{index}: node cannot load it: {error}; {_AGAIN}") from error
    if not isinstance(texts, dict):
        raise WebnormError(f"{index}: exports no texts; {_AGAIN}")
    for one in manifest["shaders"]:
        text = texts.get(one["name"])
        digest = hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else None
        if digest != one["embedded_sha256"]:
            raise _damaged(index, digest, one["embedded_sha256"], f"text of {one['name']}: ")
    return texts


def _in_utf8(*paths: Path) -> bool:
    try:
        return all(str(path).encode() for path in paths)
    except UnicodeEncodeError:
        return False


def _with_files(manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from manifest["shaders"]
    yield from manifest["vectors"]


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    _keep_inside(path, folder)
    try:
        manifest: dict[str, Any] = files.read_json(path)
    except NotADirectoryError:
        raise WebnormError(f"{folder}: expected the folder of an export, not a file") from None
    except FileNotFoundError:
        if folder.exists():
            raise WebnormError(
                f"{folder}: no manifest.json, so this is no exported package; expected a folder that "
                "`webnorm export OP` wrote"
            ) from None
        raise WebnormError(f"{folder}: no such folder; expected one that `webnorm export OP` wrote") from None
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise WebnormError(f"{path}: not JSON ({error}); {_AGAIN}") from error
    check_form(manifest, {"schema": int}, str(path))
    if manifest["schema"] != SCHEMA:
        raise WebnormError(
            f"{path}: schema is {manifest['schema']}; expected {SCHEMA}: {_AGAIN} with this webnorm"
        )
    check_form(manifest, _MANIFEST, str(path))
    if not manifest["shaders"]:
        raise WebnormError(f"{path}: shaders is empty; {_AGAIN}")
    for one in manifest["shaders"]:
        known = {binding["binding"] for binding in one["bindings"]}
        for step in one["passes"]:
            if not known.issuperset(step["bindings"]):
                raise WebnormError(f"{path}: {one['name']} binds what it does not declare; {_AGAIN}")
        if "verdict" in one["native"]:
            where = f"{one['name']}.native"
            check_form(one["native"], _NATIVE, str(path), where)
            if one["native"]["verdict"] not in _VERDICTS:
                got = json.dumps(one["native"]["verdict"])[:40]
                raise WebnormError(
                    f"{path}: {where}.verdict is {got}; expected {', '.join(_VERDICTS)}: {_AGAIN}"
                )
            for name, vector in one["native"]["vectors"].items():
                check_form(vector, {"verdict": str}, str(path), f"{where}.vectors.{name}")
    return manifest


def _keep_inside(path: Path, folder: Path) -> None:
    """Raise WebnormError for a link out of the folder, which may lead to anything."""
    try:
        linked = path.is_symlink()
    except OSError as error:
        raise _unreadable(path, error) from error
    if linked and not files.lies_in(path, folder):
        raise WebnormError(f"{path}: it is a link that leads out of the folder, or nowhere; {_AGAIN}")


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise WebnormError(f"{path}: expected a file; {_AGAIN}")
        return files.read_bytes(path)
    except FileNotFoundError:
        raise WebnormError(f"{path}: the file is missing; {_AGAIN}") from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> WebnormError:
    return WebnormError(f"{path}: cannot be read: {error.strerror or error}")


def _damaged(path: Path, digest: str | None, expected: str, what: str = "") -> WebnormError:
    got = "missing" if digest is None else f"{digest[:12]}..."
    return WebnormError(
        f"{path}: {what}sha256 is {got}, and manifest.json expects {expected[:12]}...: "
        f"changed since the export; {_AGAIN}"
    )


def check_form(data: Any, form: Any, file: str, where: str = "") -> None:
    """Raise WebnormError unless the data has the form (see _MANIFEST) at least; `where` leads up to it."""
    kind = type(form) if isinstance(form, dict | list) else form
    if not isinstance(data, kind):
        names = (_KINDS[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
        got = json.dumps(data)[:40]
        raise WebnormError(
            f"{file}: {where or 'all of it'} is {got}; expected {' or '.join(names)}: {_AGAIN}"
        )
    if isinstance(form, dict):
        for key, value in form.items():
            place = f"{where}.{key}" if where else key
            if key not in data:
                raise WebnormError(f"{file}: {place} is missing; {_AGAIN}")
            check_form(data[key], value, file, place)
    elif isinstance(form, list):
        for i, item in enumerate(data):
            check_form(item, form[0], file, f"{where}[{i}]")
