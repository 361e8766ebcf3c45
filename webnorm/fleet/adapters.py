"""Adapters of a fleet: what each is, which are equal, and which of those agree on what a copy takes."""

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
from webnorm.gpu.device import Device, adapter_text, is_meant
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.process.worker import TaskLimits, Worker, explain_worker_failure

# Equal cards share the work where their copies differ by no more: otherwise one of them is not in order, and
# figures of both are no figures of either.
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
        """What equal cards have in common (adapter, driver, versions, limits), as a Dask resource."""
        same = {
            "description": self.description,
            "traits": sorted(self.traits.features),
            "webnorm": self.webnorm,
        }
        return f"webnorm-{hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16]}"

    @property
    def platform(self) -> Platform:
        """What its tunings hold for."""
        return Platform.of(self.description)

    @property
    def device(self) -> tuple[str, int]:
        """What tells it from other cards."""
        return self.host, self.index

    def __str__(self) -> str:
        return adapter_text(self.description)

    def fits(self, choice: str) -> bool:
        """Whether this is what --adapter names: an index, or part of the name, as `find_adapter` has it."""
        return is_meant(choice, self.index, str(self))


def describe_adapter(device: Device, job: None) -> Iterator[Any]:
    """In a lab's worker: where among the adapters the device is, its description and traits."""
    yield device.adapter.index, device.description(), device.traits


def adapter_of(worker: Worker) -> FleetAdapter:
    """The card that a lab's worker opens, whatever time it gives kernels; WebnormError where it cannot."""
    with explain_worker_failure("opening the adapter", "; `webnorm doctor` lists them"):
        ((index, description, traits),) = worker.stream(describe_adapter, None, TaskLimits())
    return FleetAdapter(platform.node(), index, description, traits)


@dataclass(frozen=True)
class AdapterPool:
    """Equal cards that share work. `gbps` is what each one's copy moves, by Card.device, where that was
    measured. `workers` names those of the pool where others have equal cards, and is empty where none has.
    """

    cards: tuple[FleetAdapter, ...]
    gbps: Mapping[tuple[str, int], float]
    workers: tuple[str, ...] = ()

    @property
    def card(self) -> FleetAdapter:
        """One of them: they are equal."""
        return self.cards[0]

    @property
    def devices(self) -> list[tuple[str, int]]:
        """Each card once, however many workers it has."""
        return list(dict.fromkeys(card.device for card in self.cards))

    def said(self, device: tuple[str, int]) -> str:
        """A card in words, with what its copy moves."""
        host, index = device
        return f"adapter {index} of {host}, whose copy moves {self.gbps[device]:.0f} GB/s"

    def description(self) -> dict[str, Any]:
        """The device as a results file has it; of more than one, each with what its copy moves."""
        found = dict(self.card.description)
        if len(self.devices) > 1:
            # A check times none.
            rates = {device: {"copy_gbps": gbps} for device, gbps in self.gbps.items()}
            found["cards"] = [
                {"host": device[0], "index": device[1], **rates.get(device, {})} for device in self.devices
            ]
        return found


def agreeing_adapters(gbps: Mapping[tuple[str, int], float]) -> list[list[tuple[str, int]]]:
    """Cards by what their copies move, as groups that agree: the largest first, of equal size the faster."""
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
