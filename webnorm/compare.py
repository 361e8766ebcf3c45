"""Two reports held side by side: what became faster, what slower, and what cannot be told."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from webnorm.errors import WebnormError
from webnorm.problem import Problem
from webnorm.results import Report, Result

Verdict = Literal["SAME", "FASTER", "SLOWER", "UNCLEAR", "BROKEN", "NOT TIMED", "ONLY IN OLD", "ONLY IN NEW"]

# A difference this small is none. The samples of one run share a clock, a temperature and a placement in
# memory, so their spread does not show what changes between runs; 2 % leaves room for it.
BAND = 0.02
# The least and the greatest of n samples enclose the true median with probability 1 - 2^(1 - n): 87.5 % for
# 4 samples, 93.75 % for 5. With fewer, nothing drawn from them can be a 95 % interval.
FEWEST_SAMPLES = 5
RESAMPLES = 2000
CONFIDENCE = 0.95
# What has to agree before times of two reports mean the same.
DEVICE_KEYS = ("adapter", "vendor", "driver", "backend", "type")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One variant on one problem in two reports.

    `ratio` is the new median over the old one, above 1 is slower; `low` and `high` bound it with 95 %
    confidence. They are None where there is nothing to divide; `reason` then says why.
    """

    op: str
    kernel: str
    constants: Mapping[str, int]
    problem: Problem
    case: str | None
    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


def compare(old: Report, new: Report, *, any_device: bool = False) -> tuple[Comparison, ...]:
    """Pair the results by op, kernel, constants, problem and case, and judge each pair.

    The order is the old report's, followed by what is only in the new one. Raises WebnormError when the
    devices differ, unless `any_device`.
    """
    if not any_device:
        _require_same_device(old.device, new.device)
    before, after = _keyed(old.results), _keyed(new.results)
    found = [_judge(result, after.get(key)) for key, result in before.items()]
    found += [_judge(None, result) for key, result in after.items() if key not in before]
    return tuple(found)


def slower_than(comparisons: Sequence[Comparison], percent: float) -> list[Comparison]:
    """Those that are SLOWER by more than `percent`, and the BROKEN; WebnormError unless that is 0 or more."""
    if not (percent >= 0 and math.isfinite(percent)):
        raise WebnormError(f"percent is {percent}; expected a finite number of 0 or more")
    limit = 1 + percent / 100
    slower = {"SLOWER": limit, "BROKEN": 0.0}
    return [one for one in comparisons if (one.ratio or math.inf) > slower.get(one.verdict, math.inf)]


def ratio_interval(old: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of median(new) / median(old), by percentile bootstrap with a fixed seed.

    Both lists are drawn from anew, with replacement, and the percentiles of the resulting ratios are taken:
    B. Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7 (1979); Efron and
    Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.
    """
    rng = np.random.default_rng(0)
    resampled = [np.median(rng.choice(np.asarray(one), (RESAMPLES, len(one))), axis=1) for one in (old, new)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled[1] / resampled[0], (tail, 1 - tail))
    return float(low), float(high)


def _require_same_device(old: Mapping[str, object], new: Mapping[str, object]) -> None:
    for key in DEVICE_KEYS:
        if old.get(key) != new.get(key):
            raise WebnormError(
                f"the devices differ: {key} is {old.get(key)!r} in the old report and {new.get(key)!r} in "
                "the new one; times are compared on one device, with --any-device (any_device=True) on any"
            )


def _keyed(results: Sequence[Result]) -> dict[Hashable, Result]:
    """By what makes a pair; what was measured twice is paired in order."""
    seen: Counter[Hashable] = Counter()
    keyed: dict[Hashable, Result] = {}
    for result in results:
        constants = tuple(sorted((name, int(value)) for name, value in result.constants.items()))
        key = (result.op, result.kernel, constants, result.problem, result.case)
        keyed[(*key, seen[key])] = result
        seen[key] += 1
    return keyed


def _judge(old: Result | None, new: Result | None) -> Comparison:
    either = old or new
    assert either is not None

    def told(
        verdict: Verdict,
        reason: str | None = None,
        ratio: float | None = None,
        interval: tuple[float, float] | tuple[None, None] = (None, None),
    ) -> Comparison:
        low, high = interval
        return Comparison(
            op=either.op,
            kernel=either.kernel,
            constants=either.constants,
            problem=either.problem,
            case=either.case,
            verdict=verdict,
            ratio=ratio,
            low=low,
            high=high,
            reason=reason,
        )

    if new is None:
        return told("ONLY IN OLD")
    if old is None:
        return told("ONLY IN NEW")
    if not old.timed and not new.timed and old.status == new.status:
        return told("SAME", f"neither was timed: {new.status!r} in both")
    if old.timed and not new.timed and new.status != "skip":
        why = f": {new.reason}" if new.reason else ""
        return told("BROKEN", f"the new result is {new.status!r} and has no time{why}")
    for age, result in (("old", old), ("new", new)):
        if not result.timed:
            why = f": {result.reason}" if result.reason else ""
            return told("NOT TIMED", f"the {age} result is {result.status!r} and has no time{why}")
    for what, was, now in (
        ("timing method", old.timing_method, new.timing_method),
        ("cache", old.cache, new.cache),
    ):
        if was != now:
            return told("UNCLEAR", f"{what} was {was!r} and is {now!r}")
    before, after = old.samples_ns or (), new.samples_ns or ()
    if not all(0 < sample < math.inf for sample in before + after):
        return told("UNCLEAR", "a sample is not a positive, finite time")
    # Equal lists are one recording, not two draws: paired, every sample's ratio is 1 and so is every
    # resample's, however much the samples scatter. Chance does not repeat a list of nanoseconds.
    if before and before == after:
        return told("SAME", "the samples are identical", 1.0, (1.0, 1.0))
    if min(len(before), len(after)) < FEWEST_SAMPLES:
        return told("UNCLEAR", f"{len(before)} and {len(after)} samples; {FEWEST_SAMPLES} are needed")
    ratio = float(np.median(after) / np.median(before))
    interval = ratio_interval(before, after)
    return told(_verdict(ratio, *interval), None, ratio, interval)


def _verdict(ratio: float, low: float, high: float) -> Verdict:
    """A change needs both: an interval without 1 (not chance) and a ratio beyond the band (not a trifle)."""
    if low >= 1 - BAND and high <= 1 + BAND:
        return "SAME"
    if low > 1 and ratio > 1 + BAND:
        return "SLOWER"
    if high < 1 and ratio < 1 - BAND:
        return "FASTER"
    return "UNCLEAR"
