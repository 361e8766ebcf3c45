"""What is used of a package's manifest and of its page's report, and may be relied on once it is checked; and
the classes of devices that an export has shaders for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from webnorm.errors import WebnormError
from webnorm.files import forms
from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.web.folder import AGAIN

# cols, rows, eps and has_mean: names of the manifest's format.
# JSON has no infinity; webnorm writes such a number as a string.
_Number = float | str | None


class _Problem(TypedDict):
    dtype: str
    eps: NotRequired[_Number]
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
    has_mean: NotRequired[bool]
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


# --- classes of devices

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

# The lab compares kernels on software adapters, too; some kernels need subgroups.
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
