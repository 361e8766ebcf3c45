"""The adapters of a cluster: their identity, equal adapters, and pools with the same copy throughput."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from webnorm._version import __version__
from webnorm.choice.tuning import Platform
from webnorm.gpu.backend_names import Backend, backend_of
from webnorm.gpu.device import Device, adapter_text, is_meant
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.process.worker import TaskLimits, Worker, explain_worker_failure

# Equal cards share work if the throughputs of their copies differ by at most this factor. A larger difference
# means that one card is impaired, and a mix of both cards' timings would describe neither.
AGREEING = 1.03


@dataclass(frozen=True)
class FleetAdapter:
    """One adapter of one host. `index` counts the host's adapters as `webnorm doctor` does."""

    host: str
    index: int
    description: Mapping[str, Any]
    traits: Traits
    webnorm: str = __version__

    @cached_property
    def key(self) -> str:
        """The Dask resource that equal cards share: a hash of adapter, driver, versions and limits."""
        same = {
            "description": self.description,
            "traits": sorted(self.traits.features),
            "webnorm": self.webnorm,
        }
        return f"webnorm-{hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16]}"

    @property
    def platform(self) -> Platform:
        """The platform that its tunings apply to."""
        return Platform.of(self.description)

    @property
    def backend(self) -> Backend:
        """The implementation of WebGPU that its worker uses."""
        return backend_of(self.description["wgpu"])

    @property
    def device(self) -> tuple[str, int]:
        """The host and index, which distinguish it from other cards."""
        return self.host, self.index

    def __str__(self) -> str:
        return adapter_text(self.description)

    def fits(self, choice: str) -> bool:
        """Return True if the card matches --adapter: an index or a part of the name, as in `find_adapter`."""
        return is_meant(choice, self.index, str(self))


def describe_adapter(device: Device, job: None) -> Iterator[Any]:
    """Yield the adapter's index, the device's description and its traits; runs in a lab worker."""
    yield device.adapter.index, device.description(), device.traits


def adapter_of(worker: Worker) -> FleetAdapter:
    """Return the card of a lab worker, without its limit for kernels; WebnormError if it cannot be opened."""
    with explain_worker_failure("opening the adapter", "; `webnorm doctor` lists them"):
        ((index, description, traits),) = worker.stream(describe_adapter, None, TaskLimits())
    return FleetAdapter(platform.node(), index, description, traits)


@dataclass(frozen=True)
class AdapterPool:
    """Equal cards that share work.

    `gbps` has the throughput of each card's copy, if it was measured, by FleetAdapter.device. `workers` names
    the pool's workers if workers outside the pool have equal cards; otherwise it is empty.
    """

    cards: tuple[FleetAdapter, ...]
    gbps: Mapping[tuple[str, int], float]
    workers: tuple[str, ...] = ()

    @property
    def card(self) -> FleetAdapter:
        """The first card, which represents all: they are equal."""
        return self.cards[0]

    @property
    def devices(self) -> list[tuple[str, int]]:
        """The cards, each once, even if it has several workers."""
        return list(dict.fromkeys(card.device for card in self.cards))

    def label(self, device: tuple[str, int]) -> str:
        """Describe a card and the throughput of its copy."""
        host, index = device
        return f"adapter {index} of {host} (copy: {self.gbps[device]:.0f} GB/s)"

    def description(self) -> dict[str, Any]:
        """Return the device entry of a results file; several cards are listed with their copy throughput."""
        found = dict(self.card.description)
        if len(self.devices) > 1:
            # A check measures no throughput.
            rates = {device: {"copy_gbps": gbps} for device, gbps in self.gbps.items()}
            found["cards"] = [
                {"host": device[0], "index": device[1], **rates.get(device, {})} for device in self.devices
            ]
        return found


def agreeing_adapters(gbps: Mapping[tuple[str, int], float]) -> list[list[tuple[str, int]]]:
    """Group cards with similar copy throughput: the largest group first, then the faster one."""
    left = sorted(gbps, key=lambda one: -gbps[one])
    found = []
    while left:
        groups = [
            [other for other in left[at:] if gbps[first] <= AGREEING * gbps[other]]
            for at, first in enumerate(left)
        ]
        best = max(groups, key=len)
        found.append(best)
        left = [one for one in left if one not in best]
    return found
