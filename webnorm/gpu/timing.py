"""Timing: samples of several things taken in turn on a device in its working state, until a rule says enough.

Nothing here touches a device: a sampler is any function that puts a sample under way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Method = Literal["timestamp", "wall clock"]
# What a sampler gives: it waits for the sample that is under way, and returns nanoseconds per dispatch.
Reading = Callable[[], float]
Sampler = Callable[[], Reading]
# What is called after each round: it takes samples of something else, and gives all it has of them.
Between = Callable[[], Sequence[Sequence[float]]]
# Between p20 and p80 lie 60 % of the samples. A quiet GPU keeps them within 2 % of the median; past 20 %
# something else was running.
NOISY_SPREAD = 0.2
# Fewer samples do not tell whether a device is noisy.
FEW_SAMPLES = 5
# The median of the last third of a run over the first third's: clocks that sink with heat show up here.
THROTTLED_RATIO = 1.15
# The same of the copy: what a share of it is made of moves no more on a device in its working state.
DRIFTING = 0.03
# Samples agree when their earlier and their later half do, within so much.
AGREEING = 0.01
# After a pause a device is as it was where the yardstick takes at most so many times its median, or its p80.
AS_BEFORE = 1.02
# Halves of fewer samples say nothing.
_LEAST_HALF = 3
# An H200 that idled for half a second had lost nothing, one that idled for seconds two thirds of its clock.
PAUSE_S = 0.1
# Standard errors of a median, in units of (p80 - p20) / sqrt(samples): 1.25 of 1.68 standard deviations.
ERROR_OF_MEDIAN = 0.75


@dataclass(frozen=True)
class StoppingRule:
    """When to begin and when to stop.

    A run begins when a yardstick's samples agree over `settle_s` seconds. It ends after `least` rounds, once
    every plan's spread (p80 - p20) / median / sqrt(samples) is at most `spread`, or at `most` rounds, or when
    `budget_s` seconds are over.
    """

    least: int = 10
    most: int = 400
    spread: float = 0.01
    budget_s: float = 20.0
    # An H200 that had idled stayed at 345 of 1980 MHz for 150 to 350 ms of work: samples that agree over less
    # may agree on the wrong clock.
    settle_s: float = 0.5


QUICK = StoppingRule(least=5, most=20, spread=0.03, budget_s=3.0)


@dataclass(frozen=True)
class TimeStatistics:
    """Median and percentiles of samples, in the unit of the samples."""

    median: float
    p20: float
    p80: float

    @property
    def spread(self) -> float:
        """(p80 - p20) / median."""
        return (self.p80 - self.p20) / self.median if self.median > 0 else math.inf


def statistics(samples: Sequence[float]) -> TimeStatistics:
    """Median, 20th and 80th percentile."""
    p20, median, p80 = np.percentile(np.asarray(samples, dtype=np.float64), [20, 50, 80])
    return TimeStatistics(float(median), float(p20), float(p80))


def flags(samples: Sequence[float]) -> tuple[str, ...]:
    """What is wrong with a run: "few samples", or "noisy" and "throttled"."""
    if len(samples) < FEW_SAMPLES:
        return ("few samples",)
    found = []
    if statistics(samples).spread > NOISY_SPREAD:
        found.append("noisy")
    if ratio_moved(samples, THROTTLED_RATIO - 1) and drift(samples) > 0:
        found.append("throttled")
    return tuple(found)


def drift(samples: Sequence[float]) -> float:
    """By how much the last third of a run is slower than the first, as a share of the first."""
    third = max(1, len(samples) // 3)
    return float(np.median(samples[-third:]) / np.median(samples[:third])) - 1


def drifting(samples: Sequence[float]) -> bool:
    """Whether a copy's samples moved by more than noise does, and by more than a share of it should bear."""
    return ratio_moved(samples, DRIFTING)


def ratio_moved(samples: Sequence[float], least: float = 0.0) -> bool:
    """Whether `drift` is more than their noise and more than `least`; False of samples too few to tell."""
    third = len(samples) // 3
    if third < _LEAST_HALF:
        return False
    noise = 3 * math.hypot(_error(samples[-third:]), _error(samples[:third]))
    return abs(drift(samples)) > max(least, noise)


def _error(samples: Sequence[float]) -> float:
    """The standard error of the samples' median, as a share of it."""
    return ERROR_OF_MEDIAN * statistics(samples).spread / math.sqrt(len(samples))


clock = time.monotonic


def elapsed(work: Callable[[], Any]) -> float:
    """Nanoseconds that a piece of work takes, by the wall clock."""
    began = time.perf_counter_ns()
    work()
    return float(time.perf_counter_ns() - began)


def enough(samples: Sequence[Sequence[float]], rule: StoppingRule, began: float) -> bool:
    """Whether the rule says stop. `samples` has a list for each plan, of which the shortest counts rounds;
    `began` is in seconds of `clock`.
    """
    done = min(map(len, samples))
    return done > 0 and done >= rounds_asked(samples, rule, began)


def rounds_asked(samples: Sequence[Sequence[float]], rule: StoppingRule, began: float) -> int:
    """How many rounds the rule asks for if the device stays as it is; as many as are done where it says stop.

    `samples` and `began` as in `enough`; one round at least is done.
    """
    done = min(map(len, samples))
    by_time = done * rule.budget_s / max(clock() - began, 1e-9)
    by_spread = math.inf
    # Of a few samples the spread says nothing yet, unless the rule goes by so few.
    if done >= min(FEW_SAMPLES, rule.least):
        by_spread = (max(statistics(own[:done]).spread for own in samples) / rule.spread) ** 2
    wanted = min(rule.most, by_time, max(rule.least, by_spread))
    return max(done, math.ceil(wanted))


def agree(samples: Sequence[float]) -> bool:
    """Whether the later half of the samples is as fast as the earlier, as far as their noise can tell."""
    half = len(samples) // 2
    if half < _LEAST_HALF:
        return False
    before, after = samples[:half], samples[-half:]
    noise = 2 * math.hypot(_error(before), _error(after))
    return abs(float(np.median(after) / np.median(before)) - 1) <= max(AGREEING, noise)


class Pace:
    """Brings a device to its working state and holds it there, by samples of a yardstick, such as a copy.

    A GPU that idled lowers its clock and takes its time to raise it again. `settled` is False once the
    yardstick has not come to rest within the limit.
    """

    def __init__(self, yardstick: Sampler, settle_s: float) -> None:
        self._yardstick, self._settle_s = yardstick, settle_s
        # A device that has not come to rest by then will not: something else is running, or it is too hot. It
        # is given so long once.
        self.limit_s = 10 * settle_s
        # What the yardstick's samples take at most on a device that has come to rest.
        self._usual = math.inf
        self._last: float | None = None
        self.settled = True

    def ready(self) -> None:
        """Return when the device works as it does under load; at once where it has not paused."""
        if self._last is not None and clock() - self._last <= PAUSE_S:
            return
        if math.isinf(self._usual) or float(np.median(self._samples(_LEAST_HALF))) > self._usual:
            self._settle()

    def worked(self) -> None:
        """The device has done something just now."""
        self._last = clock()

    def _samples(self, count: int) -> list[float]:
        """Samples of the yardstick, each under way before the last is read."""
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
                # Too few samples for a verdict come from a yardstick that takes seconds: it has warmed up.
                self.settled = self.settled and len(taken) < 2 * _LEAST_HALF
                return


@dataclass(frozen=True)
class SampleRequest:
    """The sampler of this number is asked next."""

    index: int


@dataclass(frozen=True)
class RoundDone:
    """So many rounds are done, of so many as it looks now."""

    done: int
    of: int | None = None


def take_turns(
    samplers: Sequence[Sampler],
    samples: Sequence[list[float]],
    rule: StoppingRule,
    pace: Pace,
    between: Between | None = None,
) -> Iterator[SampleRequest | RoundDone]:
    """Fill `samples`, a list for each sampler, one sample of each in every round, until the rule says stop.

    A sample is under way before the last is read, so that the device does not idle in between. `between` is
    called after each round, when nothing is under way; the rule looks at its samples as at the others.
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
