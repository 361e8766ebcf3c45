"""Timing: samples of several plans taken in turn, until a stated rule says that is enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import wgpu

from webnorm.device import Device
from webnorm.plan import Plan

Method = Literal["timestamp", "wall clock"]

# A sample is long enough for its clock: timestamps tick in nanoseconds but a pass costs a few microseconds
# to begin and end; a submission timed from Python costs some hundred.
SAMPLE_NS = {"timestamp": 1e6, "wall clock": 2e7}
MOST_DISPATCHES = 256
# Between p20 and p80 lie 60 % of the samples. A quiet GPU keeps them within 2 % of the median; past 20 %
# something else was running.
NOISY_SPREAD = 0.2
# The median of the last third of a run over the first third's: clocks that sink with heat show up here.
THROTTLED_RATIO = 1.15
WARM_UP_RUNS = 3


@dataclass(frozen=True)
class Rule:
    """When to stop: after `least` rounds, once every plan's spread (p80 - p20) / median / sqrt(samples)
    is at most `spread`, or at `most` rounds, or when `budget_s` seconds are over.

    Runs that do not count fill the first `warm_up_s` seconds: a GPU that idled while the answers were worked
    out has lowered its clock.
    """

    least: int = 10
    most: int = 100
    spread: float = 0.01
    budget_s: float = 20.0
    warm_up_s: float = 0.0


QUICK = Rule(least=5, most=20, spread=0.03, budget_s=3.0)


@dataclass(frozen=True)
class Statistics:
    """Median and percentiles of samples, in the unit of the samples."""

    median: float
    p20: float
    p80: float

    @property
    def spread(self) -> float:
        """(p80 - p20) / median."""
        return (self.p80 - self.p20) / self.median if self.median > 0 else math.inf


def statistics(samples: Sequence[float]) -> Statistics:
    """Median, 20th and 80th percentile."""
    p20, median, p80 = np.percentile(np.asarray(samples, dtype=np.float64), [20, 50, 80])
    return Statistics(float(median), float(p20), float(p80))


def flags(samples: Sequence[float]) -> tuple[str, ...]:
    """What is wrong with a run: "noisy", "throttled"."""
    found = []
    if statistics(samples).spread > NOISY_SPREAD:
        found.append("noisy")
    third = len(samples) // 3
    if third >= 3 and float(np.median(samples[-third:])) > THROTTLED_RATIO * float(
        np.median(samples[:third])
    ):
        found.append("throttled")
    return tuple(found)


clock = time.monotonic


def elapsed(work: Callable[[], Any]) -> float:
    """Nanoseconds that a piece of work takes, by the wall clock."""
    began = time.perf_counter_ns()
    work()
    return float(time.perf_counter_ns() - began)


def enough(samples: Sequence[Sequence[float]], rule: Rule, began: float) -> bool:
    """Whether the rule says stop. `samples` has a list for each plan, all equally long; `began` is in
    seconds of `clock`.
    """
    rounds = len(samples[0])
    if rounds >= rule.most or (rounds and clock() - began >= rule.budget_s):
        return True
    return rounds >= rule.least and all(
        statistics(own).spread / math.sqrt(rounds) <= rule.spread for own in samples
    )


class Stopwatch:
    """Times dispatches on one device: with timestamp queries where they work, else by the wall clock."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.method: Method = "timestamp" if device.timestamps else "wall clock"
        self._fence = device.create_buffer(16)
        if self.method == "timestamp":
            self._queries = device.handle.create_query_set(type="timestamp", count=2)
            usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
            self._ticks = device.handle.create_buffer(size=16, usage=usage)

    def time(self, plan: Plan, dispatches: int) -> float:
        """Nanoseconds per dispatch of the plan, over `dispatches` in a row that take the sets in turn."""
        handle = self.device.handle
        encoder = handle.create_command_encoder()
        compute = encoder.begin_compute_pass(**self._timestamp_writes())
        for index in range(dispatches):
            plan.encode(compute, index)
        compute.end()
        if self.method == "timestamp":
            encoder.resolve_query_set(self._queries, 0, 2, self._ticks, 0)
            handle.queue.submit([encoder.finish()])
            begin, end = np.frombuffer(handle.queue.read_buffer(self._ticks), np.uint64)
            return float(end - begin) * self.device.timestamp_period / dispatches
        commands = encoder.finish()
        self.wait()

        def run() -> None:
            handle.queue.submit([commands])
            self.wait()

        return elapsed(run) / dispatches

    def wait(self) -> None:
        """Return when all that was submitted or written is done: a read comes behind it.

        wgpu-py's own on_submitted_work_done_sync raises TypeError (0.32.0).
        """
        self.device.handle.queue.read_buffer(self._fence)

    def _timestamp_writes(self) -> dict[str, Any]:
        if self.method != "timestamp":
            return {}
        return {
            "timestamp_writes": {
                "query_set": self._queries,
                "beginning_of_pass_write_index": 0,
                "end_of_pass_write_index": 1,
            }
        }

    def dispatches(self, plan: Plan) -> int:
        """Warm up, then say how many dispatches make a sample long enough for the clock.

        At least one for every set of buffers, so that each is written by every sample.
        """
        once = min(self.time(plan, 1) for _ in range(WARM_UP_RUNS))
        needed = math.ceil(SAMPLE_NS[self.method] / max(once, 1.0))
        return max(min(needed, MOST_DISPATCHES), plan.sets)
