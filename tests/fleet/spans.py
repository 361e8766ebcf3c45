"""What a Dask worker of a test is given that is nothing of webnorm's."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webnorm.fleet.errand import Errand
from webnorm.kernels.traits import Traits
from webnorm.lab.worker import Worker


def span() -> tuple[float, float]:
    """When it ran."""
    begun = time.monotonic()
    time.sleep(0.02)
    return begun, time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Silent(Errand):
    """It gives no sign of life for so many seconds, as a kernel that hangs."""

    seconds: float

    def run(self, worker: Worker, traits: Traits) -> Iterator[Any]:
        yield from worker.stream(_silent, self.seconds)


def _silent(device: object, seconds: float) -> Iterator[str]:
    time.sleep(seconds)
    yield "awake"
