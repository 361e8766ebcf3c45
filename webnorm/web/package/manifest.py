"""What is used of a package's manifest and of its page's report, and may be relied on once it is checked;
the classes of devices that an export has shaders for; and a package that is read back.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from webnorm.errors import WebnormError
from webnorm.files import atomic, forms
from webnorm.kernels.headers.traits import BROWSER, Traits
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

# cols, rows, eps and has_mean: names of the manifest's format.
# JSON has no infinity; webnorm writes such a number as a string.
_Number = float | str | None


class _Problem(TypedDict):
    dtype: str
    eps: _Number
    options: dict[str, Any]


class _Tensor(TypedDict):
    name: str
    access: str
    dtype: str
    shape: list[Any]


class _Binding(TypedDict):
    binding: int
    type: str


class _Pass(TypedDict):
    entry_point: str
    bindings: list[int]


class _NativeVector(TypedDict):
    verdict: str


class NativeResult(TypedDict, total=False):
    """How a shader did where it was exported, or the reason why it was not run."""

    verdict: Literal["pass", "fail", "skip"]
    reason: str
    max_abs_error: _Number
    allowed: _Number
    vectors: dict[str, _NativeVector]


class ShaderText(TypedDict):
    """A shader's text and how it is run."""

    name: str
    sha256: str
    cols: int
    features: list[str]
    limits: dict[str, Any]
    bindings: list[_Binding]
    overrides: dict[str, Any]
    passes: list[_Pass]


class PackageShader(ShaderText):
    """A shader of a package, whose text is in a file and in index.js."""

    file: str
    embedded_sha256: str
    native: NativeResult
    loose: NotRequired[str]


class VectorFile(TypedDict):
    """A file of inputs and answers."""

    name: str
    file: str
    sha256: str
    cols: int
    rows: int


class MissingClass(TypedDict):
    """A class of devices that no shader for so many columns serves, and why."""

    cols: int
    devices: str
    why: str


class PackageManifest(TypedDict):
    """The manifest, of the one schema that there is."""

    schema: Literal[1]
    op: str
    has_mean: bool
    problem: _Problem
    tensors: list[_Tensor]
    files: dict[str, str]
    cols: list[int]
    shaders: list[PackageShader]
    absent: NotRequired[list[MissingClass]]
    vectors: list[VectorFile]


class _LabEntry(TypedDict):
    file: str
    lines: str
    op: str
    options: list[str]
    cols: int
    dtype: str


class LabIndex(TypedDict):
    """What a lab's folder holds; `submit` is the URL that its page offers to send results to."""

    schema: Literal[1]
    files: dict[str, str]
    submit: NotRequired[str]
    bundles: list[_LabEntry]


class LabShaderText(ShaderText):
    """A shader of a lab, whose text is told by the same bundle."""

    kernel: str


class _LabManifest(TypedDict):
    shaders: list[LabShaderText]


class LabBundle(TypedDict):
    """Every kernel for one problem of a lab; by a shader's name, which lines of its op's are its text."""

    manifest: _LabManifest
    texts: dict[str, list[Annotated[int, Meta(ge=0)]]]


class _ReportedVector(TypedDict):
    name: str
    verdict: str
    reason: str | None


class ReportedShader(TypedDict):
    """What a page says of a shader."""

    name: str
    skipped: str | None
    max_abs_error: _Number
    allowed: NotRequired[_Number]
    vectors: list[_ReportedVector]
    timing: dict[str, Any] | None


class PageReport(TypedDict):
    """What a page reports."""

    adapter: dict[str, Any]
    features: list[str]
    chosen: dict[str, str | None]
    reasons: dict[str, Any]
    shaders: list[ReportedShader]


class LabResult(TypedDict):
    """What a lab's page says of a kernel; one that is `expected` to fail is unstable."""

    op: str
    kernel: str
    status: Literal["pass", "fail", "skip", "error"]
    reason: NotRequired[str]
    expected: NotRequired[bool]


class _LabDevice(TypedDict):
    adapter: str


class LabReport(TypedDict):
    """What a lab's page reports."""

    device: _LabDevice
    results: list[LabResult]


def parse_manifest(data: Any, form: type[forms.Form], file: str) -> forms.Form:
    """The data as far as it is of the form; WebnormError where something of it is missing or else."""
    try:
        return forms.read(data, form)
    except WebnormError as error:
        raise WebnormError(f"{file}: {error}; {AGAIN}") from error


class CouldNotCheck(WebnormError):
    """A page says why it could not check, such as that its browser has no adapter."""


def parse_report(report: Any, form: type[forms.Form], page: str) -> forms.Form:
    """A page's report as far as it is of the form; raises CouldNotCheck where it says that there is none, and
    WebnormError where something of it is missing or else.
    """
    if isinstance(report, dict) and report.get("error"):
        raise CouldNotCheck(f"{page} could not check: {report['error']}")
    return parse_manifest(report, form, f"the report of {page}")


_WIDE = replace(BROWSER, max_invocations=1024, workgroup_storage=32768)
_NO_FEATURES: frozenset[str] = frozenset()
# What a page may find, the most capable first: a device gets the first shader that fits it. Chrome grants
# 1024 invocations on most desktops, and only where they are asked for; Firefox has no subgroups yet, and to a
# program on the CPU they are of no use.
CLASSES: dict[str, Traits] = {
    "software": replace(BROWSER, software=True, features=_NO_FEATURES),
    "subgroups-1024": _WIDE,
    "subgroups": BROWSER,
    "portable-1024": replace(_WIDE, features=_NO_FEATURES),
    "portable": replace(BROWSER, features=_NO_FEATURES),
}

# The lab compares kernels of which some need subgroups, on software adapters too.
LAB_CLASSES: dict[str, Traits] = {"software-subgroups": replace(BROWSER, software=True), **CLASSES}


def serves(features: Collection[str], limits: Mapping[str, Any], software: bool, traits: Traits) -> bool:
    """Whether devices of a class can run a shader, given what it asks for in WebGPU's names."""
    granted = {
        "maxComputeInvocationsPerWorkgroup": traits.max_invocations,
        "maxComputeWorkgroupSizeX": traits.max_invocations,
        "maxComputeWorkgroupStorageSize": traits.workgroup_storage,
    }
    # A shader for software adapters is for no other; they take the others, too.
    return (
        (traits.software or not software)
        and traits.features.issuperset(features)
        and all(limits.get(name, 0) <= most for name, most in granted.items())
    )


def unserved(shaders: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The classes that none of a manifest's shaders serves; they are of one number of columns."""
    for name, traits in CLASSES.items():
        serving = (
            serves(one["features"], one["limits"], bool(one.get("software")), traits) for one in shaders
        )
        if not any(serving):
            yield name


def missing_class_text(absent: Iterable[MissingClass]) -> list[str]:
    """A sentence for each reason: which devices have no shader, for how many columns, and why."""
    by_reason: dict[tuple[int, str], list[str]] = {}
    for one in absent:
        by_reason.setdefault((one["cols"], one["why"]), []).append(one["devices"])
    return [
        f"{_devices(names)} have no shader for {cols} columns: {why}"
        for (cols, why), names in by_reason.items()
    ]


def _devices(names: Sequence[str]) -> str:
    """What the devices of some classes have in common."""
    found = [CLASSES[name] for name in names]
    if set(names) == set(CLASSES):
        return "all devices"
    if all(one.max_invocations == BROWSER.max_invocations for one in found):
        limits = f"{BROWSER.max_invocations} invocations and {BROWSER.workgroup_storage} bytes in a workgroup"
        which = "devices" if any(one.features for one in found) else "devices without subgroups"
        return f"{which} with the default limits ({limits})" if names != ["software"] else "software adapters"
    if not any(one.features for one in found):
        return "devices without subgroups"
    return f"devices of the classes {', '.join(names)}"


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
    # Nothing would be wrong with a package of nothing.
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
