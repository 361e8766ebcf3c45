"""What `doctor` finds of a machine: its adapters, the device that is used, and what works with them."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from webnorm._version import __version__

if TYPE_CHECKING:
    from webnorm.gpu.device import AdapterInfo
    from webnorm.system import Fix


@dataclass(frozen=True)
class SeenAdapter:
    """An adapter as another process saw it: AdapterInfo without wgpu's object."""

    index: int
    name: str
    vendor: str
    driver: str
    backend: str
    type: str
    features: tuple[str, ...]
    limits: Mapping[str, int]

    @classmethod
    def of(cls, info: AdapterInfo) -> SeenAdapter:
        """What is to be told of an adapter."""
        about = (info.index, info.name, info.vendor, info.driver, info.backend, info.type)
        return cls(*about, tuple(sorted(info.features)), info.limits)

    def __str__(self) -> str:
        return f"{self.name} ({self.backend}, {self.type}, {self.driver})"


@dataclass(frozen=True)
class AdapterList:
    """All that wgpu finds, the one that is used, and whether somebody chose it."""

    found: tuple[SeenAdapter, ...]
    used: SeenAdapter | None
    chosen: bool


def look_for_adapters(choice: str | None, open_it: bool) -> Iterator[Any]:
    """The Adapters, then the description of the device that is used (see Device), where it is to be opened.

    Raises WebnormError for a choice that there is not.
    """
    from webnorm.gpu.device import adapters, chosen_name, find_adapter, open_device

    found = adapters()
    info = find_adapter(choice) if found else None
    seen = tuple(map(SeenAdapter.of, found))
    yield AdapterList(seen, None if info is None else seen[info.index], chosen_name(choice) is not None)
    if info is not None and open_it:
        yield open_device(info).description()


def adapter_lines(adapters: AdapterList) -> Iterator[tuple[str, str]]:
    """For each adapter a line with its index, and one below it with what drives it."""
    for one in adapters.found:
        used = " (used)" if one is adapters.used else ""
        features = ", ".join(one.features) or "no features"
        yield f"{one.index}{used}: {one.name}", f"{one.backend}, {one.type}, {one.driver}; {features}"


def device_facts(description: Mapping[str, Any]) -> dict[str, str]:
    """The opened device: what the probes found and the limits that matter."""
    software = description["type"] == "CPU"
    return {
        "subgroup size": f"{description.get('subgroup_size', 'no subgroups')} (probed)",
        "timing": f"by {_clock(description)}",
        "software": "yes: its ranking of kernels is not a GPU's" if software else "no",
        **{name: f"{value:,}" for name, value in description["limits"].items()},
        "webnorm, wgpu-py, Python": f"{__version__}, {description['wgpu']}, {platform.python_version()}",
    }


def _clock(description: Mapping[str, Any]) -> str:
    if "timestamp-query" in description["features"]:
        return "timestamp queries"
    return "the wall clock: timestamp queries do not work"


def works(description: Mapping[str, Any] | None, verify: bool | None) -> dict[str, bool | None]:
    """What will work with a device, or without one; `verify` is None where nobody looked."""
    features = () if description is None else description["features"]
    return {
        "kernels": description is not None,
        "subgroups": "subgroups" in features,
        "timestamps": "timestamp-query" in features,
        "gpu": description is not None and description["type"] != "CPU",
        "verify": verify,
    }


def works_line(works: Mapping[str, bool | None]) -> str:
    """The same in words."""
    if not works["kernels"]:
        line = "works here: list, new, show --target browser, compare; no kernel runs without an adapter"
    else:
        line = "works here: check, bench, tune, play, calls from Python"
        line += ", with subgroups" if works["subgroups"] else "; no kernel that needs subgroups"
        line += "; times are a GPU's" if works["gpu"] else "; times are a software adapter's, not a GPU's"
    told = {
        None: "`webnorm doctor --browser` looks for what verify needs",
        True: "a browser and Tint are installed for verify",
        False: "verify lacks what is named above",
    }
    return f"{line}; {told[works['verify']]}"


def to_json(
    adapters: AdapterList,
    description: Mapping[str, Any] | None,
    missing: Sequence[Fix],
    works: Mapping[str, bool | None],
) -> str:
    """All of it, for programs."""
    return json.dumps(
        {
            "webnorm": __version__,
            "python": platform.python_version(),
            "wgpu": None if description is None else description["wgpu"],
            "adapters": [asdict(one) for one in adapters.found],
            "used": None if adapters.used is None else adapters.used.index,
            "device": description,
            "timing": None if description is None else _clock(description),
            "missing": [asdict(one) for one in missing],
            "works": works,
            "summary": works_line(works),
        },
        indent=1,
    )
