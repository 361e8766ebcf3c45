"""An exported package that is read back: its files have to be what its manifest says."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from webnorm import files
from webnorm.errors import WebnormError
from webnorm.web import tint
from webnorm.web.browser import PAGE
from webnorm.web.folder import MANIFEST
from webnorm.web.manifest import AGAIN, Manifest, Shader, Vector, checked


@dataclass(frozen=True)
class Package:
    """An export whose files are what its manifest says."""

    folder: Path
    manifest: Manifest
    texts: Mapping[str, str]
    """WGSL by shader name, as index.js has it; none where node is missing, which loads it."""

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were read."""
        names = {MANIFEST, "index.js", PAGE, *self.manifest["files"]}
        return [self.folder / name for name in (*names, *(one["file"] for one in _with_files(self.manifest)))]

    @property
    def shaders(self) -> Sequence[Shader]:
        """The manifest's entries, in order of preference."""
        return self.manifest["shaders"]


def read_package(folder: Path) -> Package:
    """Read an export; WebnormError if a file is missing or is not what `webnorm export` wrote."""
    manifest = _read_manifest(folder)
    expected = {**manifest["files"], **{one["file"]: one["sha256"] for one in _with_files(manifest)}}
    for name, digest in expected.items():
        path = folder / name
        if not files.lies_in(path, folder):
            raise WebnormError(f"{folder / MANIFEST}: {name!r} lies outside of the folder; {AGAIN}")
        found = hashlib.sha256(_read(path)).hexdigest()
        if found != digest:
            raise _damaged(path, found, digest)
    for path in (folder / "index.js", folder / PAGE):
        _keep_inside(path, folder)
        _read(path)
    return Package(folder, manifest, _texts(folder / "index.js", manifest) if shutil.which("node") else {})


def _texts(index: Path, manifest: Manifest) -> dict[str, str]:
    """The shaders that an index.js exports; WebnormError unless they are those of the manifest."""
    if not _in_utf8(files.absolute(index), files.resolved(index)):
        raise WebnormError(
            f"{index.parent}: its path is not UTF-8, and node loads nothing from there; "
            "expected a package in a folder whose name is"
        )
    try:
        texts: dict[str, str] = tint.run_node("texts.mjs", index)
    except WebnormError as error:
        raise WebnormError(f"{index}: node cannot load it: {error}; {AGAIN}") from error
    if not isinstance(texts, dict):
        raise WebnormError(f"{index}: exports no texts; {AGAIN}")
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


def _with_files(manifest: Manifest) -> Iterator[Shader | Vector]:
    yield from manifest["shaders"]
    yield from manifest["vectors"]


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    _keep_inside(path, folder)
    try:
        data = files.read_json(path)
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
        raise WebnormError(f"{path}: not JSON ({error}); {AGAIN}") from error
    manifest = checked(data, Manifest, str(path))
    if not manifest["shaders"]:
        raise WebnormError(f"{path}: shaders is empty; {AGAIN}")
    for shader in manifest["shaders"]:
        known = {binding["binding"] for binding in shader["bindings"]}
        for each in shader["passes"]:
            if not known.issuperset(each["bindings"]):
                raise WebnormError(f"{path}: {shader['name']} binds what it does not declare; {AGAIN}")
    return manifest


def _keep_inside(path: Path, folder: Path) -> None:
    """Raise WebnormError for a link out of the folder, which may lead to anything."""
    try:
        linked = path.is_symlink()
    except OSError as error:
        raise _unreadable(path, error) from error
    if linked and not files.lies_in(path, folder):
        raise WebnormError(f"{path}: it is a link that leads out of the folder, or nowhere; {AGAIN}")


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise WebnormError(f"{path}: expected a file; {AGAIN}")
        return files.read_bytes(path)
    except FileNotFoundError:
        raise WebnormError(f"{path}: the file is missing; {AGAIN}") from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> WebnormError:
    return WebnormError(f"{path}: cannot be read: {error.strerror or error}")


def _damaged(path: Path, digest: str | None, expected: str, what: str = "") -> WebnormError:
    got = "missing" if digest is None else f"{digest[:12]}..."
    return WebnormError(
        f"{path}: {what}sha256 is {got}, and manifest.json expects {expected[:12]}...: "
        f"changed since the export; {AGAIN}"
    )
