"""The stopwatch: how long a plan's dispatches take on a device."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import wgpu

from webnorm.device import Device
from webnorm.plan import Plan
from webnorm.timing import Method, Reading, Sampler, elapsed

# A sample is long enough for its clock: timestamps tick in nanoseconds but a pass costs a few microseconds
# to begin and end; a submission timed from Python costs some hundred.
SAMPLE_NS = {"timestamp": 1e6, "wall clock": 2e7}
MOST_DISPATCHES = 1024
WARM_UP_RUNS = 3


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

    def time(self, plan: Plan, dispatches: int) -> float:
        """Nanoseconds per dispatch of the plan, over `dispatches` in a row that take the sets in turn."""
        return self.submit(plan, range(dispatches))()

    def submit(self, plan: Plan, dispatches: range) -> Reading:
        """As `time`, in two steps: the sample is under way, and what is returned waits for it and reads it.
        The range has the number of each dispatch, which says what set it takes.

        By the wall clock a sample is taken at once, since what runs beside it would count, too.
        """
        return (self._by_timestamps if self.method == "timestamp" else self._by_wall_clock)(plan, dispatches)

    def sampler(self, plan: Plan) -> tuple[Sampler, int]:
        """Samples of a plan, long enough for the clock, and how many dispatches each has. A sample goes on
        with the sets of buffers where the last one stopped.
        """
        dispatches = self.dispatches(plan)
        begins = itertools.count(0, dispatches)

        def sample() -> Reading:
            begin = next(begins)
            return self.submit(plan, range(begin, begin + dispatches))

        return sample, dispatches

    def wait(self) -> None:
        """Return when all that was submitted or written is done: a read comes behind it.

        wgpu-py's own on_submitted_work_done_sync raises TypeError (0.32.0).
        """
        self.device.handle.queue.read_buffer(self._fence)

    def dispatches(self, plan: Plan) -> int:
        """Warm up, then say how many dispatches make a sample long enough for the clock."""
        once = min(self.time(plan, 1) for _ in range(WARM_UP_RUNS))
        return min(math.ceil(SAMPLE_NS[self.method] / max(once, 1.0)), MOST_DISPATCHES)

    def _by_timestamps(self, plan: Plan, dispatches: range) -> Reading:
        slot = self._free.pop() if self._free else self._slot()
        encoder = self.device.handle.create_command_encoder()
        compute = encoder.begin_compute_pass(
            timestamp_writes={
                "query_set": slot.queries,
                "beginning_of_pass_write_index": 0,
                "end_of_pass_write_index": 1,
            }
        )
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

    def _by_wall_clock(self, plan: Plan, dispatches: range) -> Reading:
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
