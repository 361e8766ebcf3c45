"""Statistics over runs: one number per run, and confidence intervals from the variation between runs.

Times are in nanoseconds. Within a run, the variants of one problem are sampled in turn. Samples of two
variants with the same index therefore belong to the same round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from webnorm.op.dtypes import Array

CONFIDENCE = 0.95
# Two runs give a single difference to estimate their spread. A t interval with one degree of freedom is 13
# times as wide as its standard error.
FEWEST_RUNS = 3


def midmean(values: Array) -> float:
    """Return the mean of the middle half of the values.

    Other work on the machine delays a few samples a lot, which this mean ignores. On a machine with two
    speeds a median would jump between them.
    """
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def log_ratios(over: Sequence[Array], under: Sequence[Array]) -> Array:
    """Return the midmean of log(over / under) of each run; samples are paired by round."""
    return np.array([midmean(np.log(a / b)) for a, b in zip(over, under, strict=True)])


def difference(old: Array, new: Array, confidence: float) -> tuple[float, float, float]:
    """Return mean(new) - mean(old) and its confidence interval, for one number per independent run.

    Each side needs at least two runs. The means are trimmed by a tenth of the runs at either end: on a busy
    machine one run in thirty was disturbed as a whole. The interval is Student's t for trimmed means: K. K.
    Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61 (1974). With fewer than
    ten runs nothing is trimmed and the interval is B. L. Welch's.
    """
    (old_mean, old_square, old_freedom), (new_mean, new_square, new_freedom) = map(_trimmed, (old, new))
    shift, square = new_mean - old_mean, old_square + new_square
    if square == 0:
        return shift, shift, shift
    freedom = square**2 / (old_square**2 / old_freedom + new_square**2 / new_freedom)
    reach = t_quantile(confidence, freedom) * math.sqrt(square)
    return shift, shift - reach, shift + reach


def reach_of_one(values: Array, confidence: float) -> float:
    """Return the distance from the mean of at least two runs within which one more run should lie."""
    _, square, freedom = _trimmed(values)
    return t_quantile(confidence, freedom) * math.sqrt(square * (1 + len(values)))


def _trimmed(values: Array) -> tuple[float, float, int]:
    """Return the trimmed mean, the square of its standard error, and the degrees of freedom."""
    ordered = np.sort(values)
    count = len(ordered)
    cut = count // 10
    kept = ordered[cut : count - cut]
    # The variance is winsorized: trimmed values count as the nearest value that is kept.
    squares = float(np.clip(ordered, kept[0], kept[-1]).var()) * count
    return float(kept.mean()), squares / (len(kept) * (len(kept) - 1)), len(kept) - 1


def t_quantile(confidence: float, freedom: float) -> float:
    """Return t such that |T| <= t with this probability, for Student's T with `freedom` >= 1."""
    # With T = sqrt(freedom) tan(angle) the angle has the density cos(angle)^(freedom - 1) on a finite range.
    steps = 1 << 16
    angles = (np.arange(steps) + 0.5) * (math.pi / 2 / steps)
    below = np.cumsum(np.cos(angles) ** (freedom - 1))
    at = int(np.searchsorted(below, confidence * below[-1]))
    return math.sqrt(freedom) * math.tan(angles[min(at, steps - 1)])


def median_interval(values: Array) -> tuple[float, float]:
    """Return the 95 % interval of the median of independent values of any distribution.

    The number of values below the true median is binomial with probability one half, so that two of the
    values bound the interval. Fewer than six values are not enough: the interval is (-inf, inf).
    """
    ordered = np.sort(values)
    count = len(ordered)
    cut, outside = 0, 0.5**count
    while outside <= (1 - CONFIDENCE) / 2:
        cut += 1
        outside += math.comb(count, cut) * 0.5**count
    if cut == 0:
        return -math.inf, math.inf
    return float(ordered[cut - 1]), float(ordered[count - cut])


def ratio_interval(over: Sequence[Array], under: Sequence[Array]) -> tuple[float, float]:
    """Return the 95 % interval of over / under, with samples paired by round.

    It uses the variation between runs if there are enough runs, and the variation between rounds otherwise.
    """
    if len(over) >= FEWEST_RUNS:
        ratios = log_ratios(over, under)
        _, low, high = difference(np.zeros(2), ratios, CONFIDENCE)
    else:
        low, high = median_interval(np.log(np.concatenate(over) / np.concatenate(under)))
    return math.exp(low), math.exp(high) if high < 700.0 else math.inf
