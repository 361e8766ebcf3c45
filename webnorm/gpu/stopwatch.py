"""The stopwatch, which measures the time of a plan's dispatches on a device."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from webnorm.gpu.backend import wgpu
from webnorm.gpu.compute_programs import timed_pass
from webnorm.gpu.device import Device
from webnorm.gpu.timing import Method, Reading, Sampler, elapsed

# The least duration of a sample. Beginning and ending a pass costs a few microseconds, and a submission from
# Python some hundred.
SAMPLE_NS = {"timestamp": 1e6, "wall clock": 2e7}
MOST_DISPATCHES = 1024
WARM_UP_RUNS = 3


class TimedDispatches(Protocol):
    """An object that can be timed, such as a Plan: it adds numbered dispatches to a compute pass."""

    def encode(self, compute: Any, index: int = 0) -> None:
        """Add the dispatches with this number to a compute pass."""


class SetRotation:
    """A counter that numbers dispatches in order.

    Plans that write the same sets of buffers share it, so that no dispatch finds its own results in a set
    (see Plan).
    """

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> range:
        """Return the next `count` numbers."""
        begin, self._next = self._next, self._next + count
        return range(begin, self._next)


class _Slot(NamedTuple):
    """The queries for the two timestamps of a sample, the buffer they resolve to, and a buffer to map."""

    queries: Any
    ticks: Any
    mapped: Any


class Stopwatch:
    """A timer for dispatches on one device, by timestamp queries if they work, else by the wall clock."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.method: Method = "timestamp" if device.timestamps else "wall clock"
        self._fence = device.create_buffer(16)
        self._free: list[_Slot] = []

    def submit(self, plan: TimedDispatches, dispatches: range) -> Reading:
        """Start a sample of the plan's dispatches with these numbers, which select their sets of buffers.

        The returned function waits for the sample and returns nanoseconds per dispatch. By the wall clock the
        sample is taken at once, because concurrent work would count as well.
        """
        return (self._by_timestamps if self.method == "timestamp" else self._by_wall_clock)(plan, dispatches)

    def sampler(self, plan: TimedDispatches, turns: SetRotation | None = None) -> tuple[Sampler, int]:
        """Return a sampler of a plan, and the number of dispatches per sample.

        Each sample continues with the sets of buffers where the last sample from `turns` stopped.
        """
        own = turns or SetRotation()
        dispatches = self.dispatches(plan, own)
        return lambda: self.submit(plan, own.take(dispatches)), dispatches

    def wait(self) -> None:
        """Wait for all submitted work and writes, by a read that follows them.

        wgpu-py's on_submitted_work_done_sync raises TypeError (0.32.0).
        """
        self.device.handle.queue.read_buffer(self._fence)

    def dispatches(self, plan: TimedDispatches, turns: SetRotation) -> int:
        """Warm up, and return how many dispatches make a sample long enough for the clock."""
        once = min(self.submit(plan, turns.take(1))() for _ in range(WARM_UP_RUNS))
        return min(math.ceil(SAMPLE_NS[self.method] / max(once, 1.0)), MOST_DISPATCHES)

    def _by_timestamps(self, plan: TimedDispatches, dispatches: range) -> Reading:
        slot = self._free.pop() if self._free else self._slot()
        encoder = self.device.handle.create_command_encoder()
        compute = timed_pass(encoder, slot.queries)
        for index in dispatches:
            plan.encode(compute, index)
        compute.end()
        encoder.resolve_query_set(slot.queries, 0, 2, slot.ticks, 0)
        encoder.copy_buffer_to_buffer(slot.ticks, 0, slot.mapped, 0, 16)
        self.device.handle.queue.submit([encoder.finish()])
        mapping = slot.mapped.map_async("READ")

        def read() -> float:
            mapping.sync_wait()
            begin, end = np.frombuffer(slot.mapped.read_mapped(), np.uint64)
            slot.mapped.unmap()
            self._free.append(slot)
            return float(end - begin) * self.device.timestamp_period / len(dispatches)

        return read

    def _by_wall_clock(self, plan: TimedDispatches, dispatches: range) -> Reading:
        encoder = self.device.handle.create_command_encoder()
        compute = encoder.begin_compute_pass()
        for index in dispatches:
            plan.encode(compute, index)
        compute.end()
        commands = encoder.finish()
        self.wait()

        def run() -> None:
            self.device.handle.queue.submit([commands])
            self.wait()

        spent = elapsed(run) / len(dispatches)
        return lambda: spent

    def _slot(self) -> _Slot:
        handle = self.device.handle
        queries = handle.create_query_set(type="timestamp", count=2)
        usage = wgpu.BufferUsage
        return _Slot(
            queries,
            handle.create_buffer(size=16, usage=usage.QUERY_RESOLVE | usage.COPY_SRC),
            handle.create_buffer(size=16, usage=usage.COPY_DST | usage.MAP_READ),
        )
