"""Reading an exported package: its manifest, and its files, which are checked against their digests."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from webnorm.errors import WebnormError, counted, shown
from webnorm.files import atomic
from webnorm.web import tint
from webnorm.web.folder import (
    AGAIN,
    MANIFEST,
    MODEL_LISTING,
    NORMS,
    PAGE,
    check_digest,
    check_digests,
    keep_inside,
    read_file,
    read_listing,
)
from webnorm.web.package.manifest import (
    ModelListing,
    PackageManifest,
    PackageShader,
    ShaderText,
    parse_manifest,
)


@dataclass(frozen=True)
class ExportedPackage:
    """A package whose files match its manifest."""

    folder: Path
    manifest: PackageManifest
    texts: Mapping[str, str]
    """WGSL by shader name, from index.js; empty if node, which loads it, is missing."""
    model: Path | None = None
    """The folder of the model's package that contains this package."""

    @property
    def page(self) -> tuple[Path, str]:
        """The folder to serve, and the path of the page in it. A part needs the model's runtime."""
        if self.model is None:
            return self.folder, PAGE
        return self.model, f"{self.folder.parent.name}/{self.folder.name}/{PAGE}"

    @property
    def label(self) -> str:
        """The name of a model's norm, for messages; empty for other packages."""
        return "" if self.model is None else f"{self.folder.name}: "

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
        """A description of the contents."""
        return f"{len(self.shaders)} shaders and {len(self.manifest['vectors'])} vectors"

    @property
    def sources(self) -> list[tint.TintSource]:
        """The shaders as requests to Tint."""
        return [tint_source(one["name"], self.texts[one["name"]], one) for one in self.shaders]

    def place(self, shader: str) -> str:
        """Return the path of a shader's text, for messages."""
        return str(self.folder / next(one["file"] for one in self.shaders if one["name"] == shader))


def read_package(folder: Path) -> ExportedPackage:
    """Read a package. Raises WebnormError if a file is missing or differs from the export."""
    manifest = _read_manifest(folder)
    check_digests(folder, MANIFEST, {**manifest["files"], **_own_digests(manifest)})
    for path in (folder / "index.js", folder / PAGE):
        keep_inside(path, folder)
        read_file(path)
    texts = _texts(folder / "index.js", manifest) if shutil.which("node") else {}
    around = folder.absolute().parents
    model = around[1] if len(around) > 1 and (around[1] / MODEL_LISTING).exists() else None
    return ExportedPackage(folder, manifest, texts, model)


@dataclass(frozen=True)
class ExportedModel:
    """A model's package whose files match its listing."""

    folder: Path
    packages: tuple[ExportedPackage, ...]

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were read."""
        return [self.folder / MODEL_LISTING, *(path for one in self.packages for path in one.paths)]

    @property
    def page(self) -> tuple[Path, str]:
        """The folder to serve, and the path of the page in it that creates all norms."""
        return self.folder, PAGE

    @property
    def what(self) -> str:
        """A description of the contents."""
        shaders = sum(len(one.shaders) for one in self.packages)
        return f"{counted(len(self.packages), 'norm')} with {shaders} shaders"

    def place(self, shader: str) -> str:
        """Return the folder, for messages."""
        return str(self.folder)


def read_model(folder: Path) -> ExportedModel:
    """Read a model's package. Raises WebnormError if a file is missing or differs from the export."""
    path = folder / MODEL_LISTING
    listing = parse_manifest(read_listing(folder, MODEL_LISTING), ModelListing, str(path))
    if not listing["norms"]:
        raise WebnormError(f"{path}: norms is empty; {AGAIN}")
    check_digests(folder, MODEL_LISTING, listing["files"])
    names = [one["name"] for one in listing["norms"]]
    for name in names:
        if f"{NORMS}/{name}/{MANIFEST}" not in listing["files"]:
            raise WebnormError(f"{path}: files lacks the manifest of {shown(name)}; {AGAIN}")
    return ExportedModel(folder, tuple(read_package(folder / NORMS / name) for name in names))


def _own_digests(manifest: PackageManifest) -> dict[str, str]:
    """Return the SHA-256 of each file of a shader or of vectors."""
    return {one["file"]: one["sha256"] for one in (*manifest["shaders"], *manifest["vectors"])}


def _texts(index: Path, manifest: PackageManifest) -> dict[str, str]:
    """Return the shaders that index.js exports. Raises WebnormError if they differ from the manifest."""
    try:
        for path in (atomic.absolute(index), atomic.resolved(index)):
            str(path).encode()
    except UnicodeEncodeError:
        raise WebnormError(
            f"{index.parent}: the path is not UTF-8, so node cannot load it; "
            "move the package to a folder with a UTF-8 path"
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
        raise WebnormError(f"{folder}: is a file; expected the folder of an export") from None
    except FileNotFoundError:
        if folder.exists():
            raise WebnormError(
                f"{folder}: manifest.json is missing, so this is not an exported package; expected a folder "
                "that `webnorm export OP` wrote"
            ) from None
        raise WebnormError(f"{folder}: no such folder; expected one that `webnorm export OP` wrote") from None
    manifest = parse_manifest(data, PackageManifest, str(path))
    # An empty package would pass every check. cols is a name of the format.
    parts = {"shaders": manifest["shaders"], "cols": manifest["cols"], "vectors": manifest["vectors"]}
    for name, part in parts.items():
        if not part:
            raise WebnormError(f"{path}: {name} is empty; {AGAIN}")
    for shader in manifest["shaders"]:
        known = {binding["binding"] for binding in shader["bindings"]}
        for each in shader["passes"]:
            if not known.issuperset(each["bindings"]):
                raise WebnormError(
                    f"{path}: {shader['name']} binds buffers that it does not declare; {AGAIN}"
                )
    return manifest


def tint_source(name: str, code: str, entry: ShaderText) -> tint.TintSource:
    """Return the request to Tint for a shader, with the features and limits of its manifest."""
    kinds = {binding["binding"]: binding["type"] for binding in entry["bindings"]}
    words = (one.get("words", []) for one in entry["bindings"] if one["type"] == "immediate")
    immediates = 4 * sum(map(len, words))
    passes = tuple(
        tint.TintEntryPoint(
            each["entry_point"],
            tuple((number, kinds[number]) for number in each["bindings"]),
            constants=entry["overrides"],
            immediate_size=immediates,
        )
        for each in entry["passes"]
    )
    return tint.TintSource(name, code, passes, tuple(entry["features"]), entry["limits"])
