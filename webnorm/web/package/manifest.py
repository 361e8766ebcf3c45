"""The schemas of manifests and of pages' reports, and the classes of devices that an export has shaders for.

The schemas contain only the fields that webnorm reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from webnorm.errors import WebnormError
from webnorm.files import forms
from webnorm.kernels.headers.traits import BROWSER, SUBGROUP_ID, Traits
from webnorm.web.folder import AGAIN

# cols, rows, eps and has_mean are names of the manifest's format.
# JSON has no infinity, so webnorm writes such a number as a string.
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
    words: NotRequired[list[str]]


class _Pass(TypedDict):
    entry_point: str
    bindings: list[int]


class _NativeVector(TypedDict):
    verdict: str


class NativeResult(TypedDict, total=False):
    """The native result of a shader at the export, or the reason why it was not run."""

    verdict: Literal["pass", "fail", "skip"]
    reason: str
    max_abs_error: _Number
    allowed: _Number
    vectors: dict[str, _NativeVector]


class ShaderText(TypedDict):
    """The text of a shader, and the data for running it."""

    name: str
    sha256: str
    cols: int
    features: list[str]
    limits: dict[str, Any]
    bindings: list[_Binding]
    overrides: dict[str, Any]
    passes: list[_Pass]


class PackageShader(ShaderText):
    """A shader of a package. Its text is in a file and in index.js."""

    file: str
    language_features: list[str]
    embedded_sha256: str
    native: NativeResult
    loose: NotRequired[str]


class VectorFile(TypedDict):
    """A file of inputs and expected outputs."""

    name: str
    file: str
    sha256: str
    cols: int
    rows: int


class MissingClass(TypedDict):
    """A class of devices without a shader for a number of columns, and the reason.

    Devices with the features in `unless` have one.
    """

    cols: int
    devices: str
    why: str
    unless: NotRequired[list[str]]


class PackageManifest(TypedDict):
    """The manifest of a package, schema 1."""

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


class _ModelNorm(TypedDict):
    name: str


class ModelListing(TypedDict):
    """The listing of a model's package."""

    schema: Literal[1]
    files: dict[str, str]
    norms: list[_ModelNorm]


class _LabEntry(TypedDict):
    file: str
    lines: str
    op: str
    options: list[str]
    cols: int
    dtype: str


class LabIndex(TypedDict):
    """The index of a lab's folder; `submit` is the URL to which its page offers to send results."""

    schema: Literal[1]
    files: dict[str, str]
    submit: NotRequired[str]
    bundles: list[_LabEntry]


class LabShaderText(ShaderText):
    """A shader of a lab. Its text is in the same bundle."""

    kernel: str


class _LabManifest(TypedDict):
    shaders: list[LabShaderText]


class LabBundle(TypedDict):
    """Every kernel for one problem of a lab. `texts` has each shader's line numbers in its op's list."""

    manifest: _LabManifest
    texts: dict[str, list[Annotated[int, Meta(ge=0)]]]


class _ReportedVector(TypedDict):
    name: str
    verdict: str
    reason: str | None


class ReportedShader(TypedDict):
    """A page's report on a shader."""

    name: str
    skipped: str | None
    max_abs_error: _Number
    allowed: NotRequired[_Number]
    vectors: list[_ReportedVector]
    timing: dict[str, Any] | None


class PageReport(TypedDict):
    """The report of a package's page."""

    adapter: dict[str, Any]
    features: list[str]
    chosen: dict[str, str | None]
    reasons: dict[str, Any]
    shaders: list[ReportedShader]


class _ReportedNorm(TypedDict):
    name: str
    reason: str | None
    vectors: list[_ReportedVector]


class ModelReport(TypedDict):
    """The report of a model's page: its norms, or the reason why createNorms failed."""

    failure: str | None
    norms: list[_ReportedNorm]


class LabResult(TypedDict):
    """A lab page's report on a kernel; an unstable kernel is `expected` to fail."""

    op: str
    kernel: str
    status: Literal["pass", "fail", "skip", "error"]
    reason: NotRequired[str]
    expected: NotRequired[bool]


class _LabDevice(TypedDict):
    adapter: str


class LabReport(TypedDict):
    """The report of a lab's page."""

    device: _LabDevice
    results: list[LabResult]


def parse_manifest(data: Any, form: type[forms.Form], file: str) -> forms.Form:
    """Return the data in a form. Raises WebnormError if a field is missing or has a wrong type."""
    try:
        return forms.read(data, form)
    except WebnormError as error:
        raise WebnormError(f"{file}: {error}; {AGAIN}") from error


class CouldNotCheck(WebnormError):
    """A page reports that it could not check, for instance without an adapter."""


def parse_report(report: Any, form: type[forms.Form], page: str) -> forms.Form:
    """Return a page's report in a form.

    Raises CouldNotCheck if the page could not check, and WebnormError if a field is missing or has a wrong
    type.
    """
    if isinstance(report, dict) and report.get("error"):
        raise CouldNotCheck(f"{page} could not check: {report['error']}")
    return parse_manifest(report, form, f"the report of {page}")


# --- classes of devices

_WIDE = replace(BROWSER, max_invocations=1024, workgroup_storage=32768)
_NO_FEATURES: frozenset[str] = frozenset()
# The classes in order of preference: a device gets the first shader that fits it. The optional features that
# kernels declare extend each class (`extended`), so the classes need not name them. Chrome grants 1024
# invocations on most desktops, if they are requested. Firefox has no subgroups yet, and on a software adapter
# they are useless.
CLASSES: dict[str, Traits] = {
    "software": replace(BROWSER, software=True, features=_NO_FEATURES),
    "subgroups-1024": _WIDE,
    "subgroups": BROWSER,
    "portable-1024": replace(_WIDE, features=_NO_FEATURES),
    "portable": replace(BROWSER, features=_NO_FEATURES),
}

# The lab also compares kernels on software adapters, and some kernels need subgroups.
LAB_CLASSES: dict[str, Traits] = {"software-subgroups": replace(BROWSER, software=True), **CLASSES}


def serves(features: Collection[str], limits: Mapping[str, Any], software: bool, traits: Traits) -> bool:
    """Return whether devices of a class can run a shader with these features and limits."""
    granted = {
        "maxComputeInvocationsPerWorkgroup": traits.max_invocations,
        "maxComputeWorkgroupSizeX": traits.max_invocations,
        "maxComputeWorkgroupStorageSize": traits.workgroup_storage,
    }
    # Only software adapters take a shader for software, but they also take the other shaders.
    return (
        (traits.software or not software)
        and traits.features.issuperset(features)
        and all(limits.get(name, 0) <= most for name, most in granted.items())
    )


def unserved(shaders: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the classes that none of these shaders serves; all shaders are for one number of columns."""
    for name, traits in CLASSES.items():
        serving = (
            # Engines with subgroups have the language feature.
            serves(
                {*one["features"], *one["language_features"]} - {SUBGROUP_ID},
                one["limits"],
                bool(one.get("software")),
                traits,
            )
            for one in shaders
        )
        if not any(serving):
            yield name


def missing_class_text(absent: Iterable[MissingClass]) -> list[str]:
    """Return a sentence for each reason, with the devices and columns that have no shader."""
    by_reason: dict[tuple[int, str, str], list[str]] = {}
    for one in absent:
        features = " and ".join(one.get("unless", ()))
        unless = f" unless they have {features}" if features else ""
        by_reason.setdefault((one["cols"], unless, one["why"]), []).append(one["devices"])
    return [
        f"{_devices(names)} have no shader for {cols} columns{unless}: {why}"
        for (cols, unless, why), names in by_reason.items()
    ]


def _devices(names: Sequence[str]) -> str:
    """Return a description of the devices of some classes."""
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
