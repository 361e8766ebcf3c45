"""The stopwatch: how long a plan's dispatches take on a device."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import wgpu

from webnorm.gpu.compute_programs import timed_pass
from webnorm.gpu.device import Device
from webnorm.gpu.timing import Method, Reading, Sampler, elapsed

# A sample is long enough for its clock: timestamps tick in nanoseconds but a pass costs a few microseconds
# to begin and end; a submission timed from Python costs some hundred.
SAMPLE_NS = {"timestamp": 1e6, "wall clock": 2e7}
MOST_DISPATCHES = 1024
WARM_UP_RUNS = 3


class TimedDispatches(Protocol):
    """What is timed: anything that puts the dispatches of a number into a compute pass, such as a Plan."""

    def encode(self, compute: Any, index: int = 0) -> None:
        """Put the dispatches of this number into a pass."""


class SetRotation:
    """Numbers for dispatches, given out in order. Plans that write the same sets of buffers share them, so
    that no dispatch finds in a set what it has to put there (see Plan).
    """

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> range:
        """The next numbers."""
        begin, self._next = self._next, self._next + count
        return range(begin, self._next)


class _Slot(NamedTuple):
    """Where the two timestamps of a sample go: queries, the buffer that they are resolved to, one to map."""

    queries: Any
    ticks: Any
    mapped: Any


class Stopwatch:
    """Times dispatches on one device: with timestamp queries where they work, else by the wall clock."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.method: Method = "timestamp" if device.timestamps else "wall clock"
        self._fence = device.create_buffer(16)
        self._free: list[_Slot] = []

    def submit(self, plan: TimedDispatches, dispatches: range) -> Reading:
        """Put a sample under way. What is returned waits for it and reads nanoseconds per dispatch of the
        plan, over those of these numbers, which identify their sets.

        By the wall clock a sample is taken at once, since what runs beside it would count, too.
        """
        return (self._by_timestamps if self.method == "timestamp" else self._by_wall_clock)(plan, dispatches)

    def sampler(self, plan: TimedDispatches, turns: SetRotation | None = None) -> tuple[Sampler, int]:
        """Samples of a plan, long enough for the clock, and how many dispatches each has. A sample goes on
        with the sets of buffers where the last one stopped that took its numbers from these turns.
        """
        own = turns or SetRotation()
        dispatches = self.dispatches(plan, own)
        return lambda: self.submit(plan, own.take(dispatches)), dispatches

    def wait(self) -> None:
        """Return when all that was submitted or written is done: a read comes behind it.

        wgpu-py's own on_submitted_work_done_sync raises TypeError (0.32.0).
        """
        self.device.handle.queue.read_buffer(self._fence)

    def dispatches(self, plan: TimedDispatches, turns: SetRotation) -> int:
        """Warm up, then say how many dispatches make a sample long enough for the clock."""
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
