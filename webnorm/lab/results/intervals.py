"""What samples of several runs say: a figure for each run, and intervals from how far the runs are apart.

Times are nanoseconds. The samples of one problem in one run were taken in turn, so that those of two variants
with the same index belong to the same round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from webnorm.op.dtypes import Array

CONFIDENCE = 0.95
# With two runs there is one difference to estimate their spread from, and a t interval of one degree of
# freedom is 13 times as wide as its standard error.
FEWEST_RUNS = 3


def midmean(values: Array) -> float:
    """The mean of the middle half of values.

    What else a machine does delays a few samples a lot, which does not reach this mean; and where it has two
    speeds, a median jumps from one to the other.
    """
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def log_ratios(over: Sequence[Array], under: Sequence[Array]) -> Array:
    """The midmean of log(over / under) in each run, round by round."""
    return np.array([midmean(np.log(a / b)) for a, b in zip(over, under, strict=True)])


def difference(old: Array, new: Array, confidence: float) -> tuple[float, float, float]:
    """mean(new) - mean(old) of figures of independent runs, two or more on each side, and its interval.

    The means leave out a tenth of the runs at either end: on a busy machine one in thirty was disturbed as a
    whole. The interval is Student's t for such means: K. K. Yuen, "The two-sample trimmed t for unequal
    population variances", Biometrika 61 (1974); with fewer than ten runs it is B. L. Welch's.
    """
    (old_mean, old_square, old_freedom), (new_mean, new_square, new_freedom) = map(_trimmed, (old, new))
    shift, square = new_mean - old_mean, old_square + new_square
    if square == 0:
        return shift, shift, shift
    freedom = square**2 / (old_square**2 / old_freedom + new_square**2 / new_freedom)
    reach = t_quantile(confidence, freedom) * math.sqrt(square)
    return shift, shift - reach, shift + reach


def reach_of_one(values: Array, confidence: float) -> float:
    """How far from the mean of figures of independent runs, two or more, one more such figure may lie."""
    _, square, freedom = _trimmed(values)
    return t_quantile(confidence, freedom) * math.sqrt(square * (1 + len(values)))


def _trimmed(values: Array) -> tuple[float, float, int]:
    """The trimmed mean, the square of its standard error, and the degrees of freedom of that."""
    ordered = np.sort(values)
    count = len(ordered)
    cut = count // 10
    kept = ordered[cut : count - cut]
    # What is left out counts as the last that is not.
    squares = float(np.clip(ordered, kept[0], kept[-1]).var()) * count
    return float(kept.mean()), squares / (len(kept) * (len(kept) - 1)), len(kept) - 1


def t_quantile(confidence: float, freedom: float) -> float:
    """T such that |T| <= t with this probability, for Student's T with 1 degree of freedom or more."""
    # With T = sqrt(freedom) tan(angle) the density of the angle is cos(angle)^(freedom - 1): it has an end.
    steps = 1 << 16
    angles = (np.arange(steps) + 0.5) * (math.pi / 2 / steps)
    below = np.cumsum(np.cos(angles) ** (freedom - 1))
    at = int(np.searchsorted(below, confidence * below[-1]))
    return math.sqrt(freedom) * math.tan(angles[min(at, steps - 1)])


def median_interval(values: Array) -> tuple[float, float]:
    """The 95 % interval of the median of independent values, whatever their distribution: two of them.

    Half the values are expected on each side of the true median, so that their number is binomial. With
    fewer than six values no two of them are apart enough: (-inf, inf).
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
    """The 95 % interval of over / under, round by round: from run to run where there are enough, else from
    round to round of all.
    """
    if len(over) >= FEWEST_RUNS:
        ratios = log_ratios(over, under)
        _, low, high = difference(np.zeros(2), ratios, CONFIDENCE)
    else:
        low, high = median_interval(np.log(np.concatenate(over) / np.concatenate(under)))
    return math.exp(low), math.exp(high) if high < 700.0 else math.inf
