"""Timing: samples of several plans, taken in turn on a device under load, until a stopping rule is met.

Nothing here uses a device: a sampler is any function that starts a sample.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Method = Literal["timestamp", "wall clock"]
# The result of a sampler: a function that waits for the started sample and returns nanoseconds per dispatch.
Reading = Callable[[], float]
Sampler = Callable[[], Reading]
# Called after each round: takes samples of other work and returns all of them so far.
Between = Callable[[], Sequence[Sequence[float]]]
# 60 % of the samples are between p20 and p80. On a quiet GPU these stay within 2 % of the median; above 20 %
# other work was running.
NOISY_SPREAD = 0.2
# Fewer samples do not show whether a device is noisy.
FEW_SAMPLES = 5
# The median of the last third of a run divided by that for the first third. Clocks that drop with heat exceed
# it.
THROTTLED_RATIO = 1.15
# The same ratio, minus 1, for the copy: on a device under load it moves less.
DRIFTING = 0.03
# Samples agree if the medians of their two halves differ by at most this share.
AGREEING = 0.01
# After a pause, a device is ready if the yardstick takes at most this many times its median, or its p80.
AS_BEFORE = 1.02
# Fewer samples per half are not enough for a comparison.
_LEAST_HALF = 3
# An H200 kept its clock after idling for half a second, and lost two thirds of it after idling for seconds.
PAUSE_S = 0.1
# The standard error of a median in units of (p80 - p20) / sqrt(samples): 1.25 of 1.68 standard deviations.
ERROR_OF_MEDIAN = 0.75


@dataclass(frozen=True)
class StoppingRule:
    """The rule for the begin and the end of a run.

    A run begins when a yardstick's samples agree over `settle_s` seconds. It ends after at least `least`
    rounds, when (p80 - p20) / median / sqrt(samples) of every plan is at most `spread`. It also ends after
    `most` rounds or `budget_s` seconds.
    """

    least: int = 10
    most: int = 400
    spread: float = 0.01
    budget_s: float = 20.0
    # An H200 that had idled stayed at 345 of 1980 MHz for 150 to 350 ms of work. Over a shorter time, samples
    # may agree at the wrong clock.
    settle_s: float = 0.5


QUICK = StoppingRule(least=5, most=20, spread=0.03, budget_s=3.0)


@dataclass(frozen=True)
class TimeStatistics:
    """The median and percentiles of samples, in the unit of the samples."""

    median: float
    p20: float
    p80: float

    @property
    def spread(self) -> float:
        """(p80 - p20) / median."""
        return (self.p80 - self.p20) / self.median if self.median > 0 else math.inf


def statistics(samples: Sequence[float]) -> TimeStatistics:
    """Return the median and the 20th and 80th percentile of samples."""
    p20, median, p80 = np.percentile(np.asarray(samples, dtype=np.float64), [20, 50, 80])
    return TimeStatistics(float(median), float(p20), float(p80))


def flags(samples: Sequence[float]) -> tuple[str, ...]:
    """Return the problems of a run: "few samples", or "noisy" and "throttled"."""
    if len(samples) < FEW_SAMPLES:
        return ("few samples",)
    found = []
    if statistics(samples).spread > NOISY_SPREAD:
        found.append("noisy")
    if ratio_moved(samples, THROTTLED_RATIO - 1) and drift(samples) > 0:
        found.append("throttled")
    return tuple(found)


def drift(samples: Sequence[float]) -> float:
    """Return by how much the last third of a run is slower than the first, as a share of the first."""
    third = max(1, len(samples) // 3)
    return float(np.median(samples[-third:]) / np.median(samples[:third])) - 1


def drifting(samples: Sequence[float]) -> bool:
    """Return whether a copy's samples drift by more than their noise and by more than `DRIFTING`."""
    return ratio_moved(samples, DRIFTING)


def ratio_moved(samples: Sequence[float], least: float = 0.0) -> bool:
    """Return whether `drift` exceeds the noise of the samples and `least`; False for too few samples."""
    third = len(samples) // 3
    if third < _LEAST_HALF:
        return False
    noise = 3 * math.hypot(_error(samples[-third:]), _error(samples[:third]))
    return abs(drift(samples)) > max(least, noise)


def _error(samples: Sequence[float]) -> float:
    """Return the standard error of the samples' median, as a share of the median."""
    return ERROR_OF_MEDIAN * statistics(samples).spread / math.sqrt(len(samples))


clock = time.monotonic


def elapsed(work: Callable[[], Any]) -> float:
    """Return the nanoseconds that a piece of work takes by the wall clock."""
    began = time.perf_counter_ns()
    work()
    return float(time.perf_counter_ns() - began)


def enough(samples: Sequence[Sequence[float]], rule: StoppingRule, began: float) -> bool:
    """Return whether a run should stop.

    `samples` has a list for each plan; the shortest list counts the rounds. `began` is in seconds of `clock`.
    """
    done = min(map(len, samples))
    return done > 0 and done >= rounds_asked(samples, rule, began)


def rounds_asked(samples: Sequence[Sequence[float]], rule: StoppingRule, began: float) -> int:
    """Estimate the total number of rounds that the rule requires; the rounds done if the run should stop.

    `samples` and `began` are as in `enough`; at least one round must be done.
    """
    done = min(map(len, samples))
    by_time = done * rule.budget_s / max(clock() - began, 1e-9)
    by_spread = math.inf
    # The spread of very few samples is not meaningful, unless the rule itself uses so few.
    if done >= min(FEW_SAMPLES, rule.least):
        by_spread = (max(statistics(own[:done]).spread for own in samples) / rule.spread) ** 2
    wanted = min(rule.most, by_time, max(rule.least, by_spread))
    return max(done, math.ceil(wanted))


def agree(samples: Sequence[float]) -> bool:
    """Return whether the two halves of the samples are equally fast within their noise."""
    half = len(samples) // 2
    if half < _LEAST_HALF:
        return False
    before, after = samples[:half], samples[-half:]
    noise = 2 * math.hypot(_error(before), _error(after))
    return abs(float(np.median(after) / np.median(before)) - 1) <= max(AGREEING, noise)


class Pace:
    """Brings a device to its clock under load by running a yardstick, such as a copy, and keeps it there.

    A GPU that idled lowers its clock and takes time to raise it again. `settled` becomes False if the
    yardstick's times do not settle within the limit.
    """

    def __init__(self, yardstick: Sampler, settle_s: float) -> None:
        self._yardstick, self._settle_s = yardstick, settle_s
        # A device that has not settled by then runs other work or is too hot. The full limit applies once.
        self.limit_s = 10 * settle_s
        # The longest time of the yardstick's samples on a settled device.
        self._usual = math.inf
        self._last: float | None = None
        self.settled = True

    def ready(self) -> None:
        """Wait until the device runs at its clock under load; return at once if it has not paused."""
        if self._last is not None and clock() - self._last <= PAUSE_S:
            return
        if math.isinf(self._usual) or float(np.median(self._samples(_LEAST_HALF))) > self._usual:
            self._settle()

    def worked(self) -> None:
        """Record that the device has just worked."""
        self._last = clock()

    def _samples(self, count: int) -> list[float]:
        """Return samples of the yardstick. Each starts before the previous one is read."""
        found: list[float] = []
        flying = self._yardstick()
        for _ in range(count - 1):
            following = self._yardstick()
            found.append(flying())
            flying = following
        found.append(flying())
        self.worked()
        return found

    def _settle(self) -> None:
        began = clock()
        times: list[float] = []
        taken: list[float] = []
        while True:
            taken += self._samples(_LEAST_HALF)
            times += [clock()] * _LEAST_HALF
            while times[-1] - times[0] > self._settle_s and len(times) > 2 * _LEAST_HALF:
                del times[0], taken[0]
            spent = clock() - began
            found = statistics(taken)
            if spent >= self._settle_s and found.median <= self._usual and agree(taken):
                self._usual = min(self._usual, max(AS_BEFORE * found.median, found.p80))
                return
            if spent >= (self.limit_s if self.settled else self._settle_s):
                # A yardstick that takes seconds gives too few samples for a verdict, but the device is warm.
                self.settled = self.settled and len(taken) < 2 * _LEAST_HALF
                return


@dataclass(frozen=True)
class SampleRequest:
    """An event: the sampler with this index is next."""

    index: int


@dataclass(frozen=True)
class RoundDone:
    """An event: `done` rounds are complete, of an estimated total `of`."""

    done: int
    of: int | None = None


def take_turns(
    samplers: Sequence[Sampler],
    samples: Sequence[list[float]],
    rule: StoppingRule,
    pace: Pace,
    between: Between | None = None,
) -> Iterator[SampleRequest | RoundDone]:
    """Fill `samples`, a list for each sampler, with one sample per round, until the rule is met.

    Each sample starts before the previous one is read, so that the device does not idle in between. `between`
    is called after each round, when no sample is running; the rule applies to its samples as well.
    """
    began = clock()
    flying: tuple[int, Reading] | None = None
    wanted: int | None

    def land() -> None:
        nonlocal flying
        if flying is not None:
            index, reading = flying
            flying = None
            samples[index].append(reading())
            pace.worked()

    while True:
        for index, sampler in enumerate(samplers):
            yield SampleRequest(index)
            pace.ready()
            reading = sampler()
            land()
            flying = index, reading
            if index == 0 and samples[-1] and between is None:
                done, wanted = len(samples[-1]), rounds_asked(samples, rule, began)
                yield RoundDone(done, wanted)
                if done >= wanted:
                    reading()
                    return
        if between is not None:
            land()
            others = between()
            pace.worked()
            every = [*samples, *others]
            wanted = rounds_asked(every, rule, began) if all(every) else None
            yield RoundDone(len(samples[-1]), wanted)
            if wanted is not None and min(map(len, every)) >= wanted:
                return
