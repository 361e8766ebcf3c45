"""An export read back: its manifest, and the files that it lists, checked against their digests."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from webnorm.errors import WebnormError
from webnorm.files import atomic
from webnorm.web import tint
from webnorm.web.folder import (
    AGAIN,
    MANIFEST,
    PAGE,
    check_digest,
    check_digests,
    keep_inside,
    read_file,
    read_listing,
)
from webnorm.web.package.manifest import PackageManifest, PackageShader, ShaderText, parse_manifest


@dataclass(frozen=True)
class ExportedPackage:
    """An export whose files are what its manifest says."""

    folder: Path
    manifest: PackageManifest
    texts: Mapping[str, str]
    """WGSL by shader name, as index.js has it; none where node is missing, which loads it."""

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were read."""
        names = {MANIFEST, "index.js", PAGE, *self.manifest["files"], *_own_digests(self.manifest)}
        return [self.folder / name for name in names]

    @property
    def shaders(self) -> Sequence[PackageShader]:
        """The manifest's entries, in order of preference."""
        return self.manifest["shaders"]

    @property
    def what(self) -> str:
        """What it holds."""
        return f"{len(self.shaders)} shaders and {len(self.manifest['vectors'])} vectors"

    @property
    def sources(self) -> list[tint.TintSource]:
        """The shaders as Tint is asked about them."""
        return [tint_source(one["name"], self.texts[one["name"]], one) for one in self.shaders]

    def place(self, shader: str) -> str:
        """Where people read a shader's text."""
        return str(self.folder / next(one["file"] for one in self.shaders if one["name"] == shader))


def read_package(folder: Path) -> ExportedPackage:
    """Read an export; WebnormError if a file is missing or is not what `webnorm export` wrote."""
    manifest = _read_manifest(folder)
    check_digests(folder, MANIFEST, {**manifest["files"], **_own_digests(manifest)})
    for path in (folder / "index.js", folder / PAGE):
        keep_inside(path, folder)
        read_file(path)
    return ExportedPackage(
        folder, manifest, _texts(folder / "index.js", manifest) if shutil.which("node") else {}
    )


def _own_digests(manifest: PackageManifest) -> dict[str, str]:
    """The SHA-256 of each file of a shader or of vectors."""
    return {one["file"]: one["sha256"] for one in (*manifest["shaders"], *manifest["vectors"])}


def _texts(index: Path, manifest: PackageManifest) -> dict[str, str]:
    """The shaders that an index.js exports; WebnormError unless they are those of the manifest."""
    try:
        for path in (atomic.absolute(index), atomic.resolved(index)):
            str(path).encode()
    except UnicodeEncodeError:
        raise WebnormError(
            f"{index.parent}: its path is not UTF-8, and node loads nothing from there; "
            "expected a package in a folder whose name is"
        ) from None
    try:
        texts: dict[str, str] = tint.run_node("texts.mjs", index)
    except WebnormError as error:
        tint.check_node()
        raise WebnormError(f"{index}: node cannot load it: {error}; {AGAIN}") from error
    if not isinstance(texts, dict):
        raise WebnormError(f"{index}: exports no texts; {AGAIN}")
    for one in manifest["shaders"]:
        text = texts.get(one["name"])
        content = text.encode() if isinstance(text, str) else None
        check_digest(index, content, one["embedded_sha256"], MANIFEST, f"text of {one['name']}: ")
    return texts


def _read_manifest(folder: Path) -> PackageManifest:
    path = folder / MANIFEST
    try:
        data = read_listing(folder, MANIFEST)
    except NotADirectoryError:
        raise WebnormError(f"{folder}: expected the folder of an export, not a file") from None
    except FileNotFoundError:
        if folder.exists():
            raise WebnormError(
                f"{folder}: no manifest.json, so this is no exported package; expected a folder that "
                "`webnorm export OP` wrote"
            ) from None
        raise WebnormError(f"{folder}: no such folder; expected one that `webnorm export OP` wrote") from None
    manifest = parse_manifest(data, PackageManifest, str(path))
    # Nothing would be wrong with a package of nothing; cols is a name of the format.
    parts = {"shaders": manifest["shaders"], "cols": manifest["cols"], "vectors": manifest["vectors"]}
    for name, part in parts.items():
        if not part:
            raise WebnormError(f"{path}: {name} is empty; {AGAIN}")
    for shader in manifest["shaders"]:
        known = {binding["binding"] for binding in shader["bindings"]}
        for each in shader["passes"]:
            if not known.issuperset(each["bindings"]):
                raise WebnormError(f"{path}: {shader['name']} binds what it does not declare; {AGAIN}")
    return manifest


def tint_source(name: str, code: str, entry: ShaderText) -> tint.TintSource:
    """A shader of an export as it is asked about: with the features and limits that its manifest names."""
    kinds = {binding["binding"]: binding["type"] for binding in entry["bindings"]}
    passes = tuple(
        tint.TintEntryPoint(
            each["entry_point"],
            tuple((number, kinds[number]) for number in each["bindings"]),
            constants=entry["overrides"],
        )
        for each in entry["passes"]
    )
    return tint.TintSource(name, code, passes, tuple(entry["features"]), entry["limits"])
