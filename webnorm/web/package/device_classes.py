"""The classes of devices that an export has shaders for, and which of them a shader serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webnorm.kernels.headers.kernel import BROWSER, Traits

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


@dataclass(frozen=True)
class MissingClass:
    """A class of devices that no shader for so many columns serves, and why."""

    cols: int
    devices: str
    why: str


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
        if not any(
            serves(one["features"], one["limits"], bool(one.get("software")), traits) for one in shaders
        ):
            yield name


def missing_classes(manifest: Mapping[str, Any]) -> list[MissingClass]:
    """What a manifest says that its package lacks."""
    return [MissingClass(**one) for one in manifest.get("absent", ())]


def missing_class_text(absent: Iterable[MissingClass]) -> list[str]:
    """A sentence for each reason: which devices have no shader, for how many columns, and why."""
    by_reason: dict[tuple[int, str], list[str]] = {}
    for one in absent:
        by_reason.setdefault((one.cols, one.why), []).append(one.devices)
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
