"""The time that is left of some work: shown once it is known, and never longer than it was shown before."""

from __future__ import annotations

from bisect import bisect_right

# Less work than this foretells nothing: adapters are opened and shaders compiled first.
_LEAST_SHARE, _LEAST_S, _FEWEST = 0.05, 1.0, 3
# The whole of the work and the half of it have to foretell totals that differ by no more than this factor.
_AGREE = 1.25


class TimeLeft:
    """The rest of some work, from the shares that are done and the seconds that they took.

    Work does not go on as it began: a share of it may take ten times as long as another. So the rest counts
    as known only while the total that follows from all the work so far is near the one that followed from its
    first half. Where it proves too short it is not shown any more, until it fits what was shown.
    """

    def __init__(self) -> None:
        self._shares: list[float] = []
        self._spent: list[float] = []
        self._total: float | None = None
        self._shown = float("inf")

    def saw(self, share: float, spent: float) -> None:
        """Take note of the share that is done after so many seconds."""
        if self._shares and share < self._shares[-1]:
            # Other work, of which nothing is known.
            self._shares.clear()
            self._spent.clear()
        if not self._shares or share > self._shares[-1]:
            self._shares.append(share)
            self._spent.append(spent)
        self._total = self._foretold(spent)

    def _foretold(self, spent: float) -> float | None:
        """The seconds of the whole work; None where they are not known."""
        share = self._shares[-1]
        half = bisect_right(self._shares, share / 2) - 1
        if share < _LEAST_SHARE or spent < _LEAST_S or len(self._shares) < _FEWEST or half < 0:
            return None
        if self._shares[half] <= 0:
            return None
        total, before = spent / share, self._spent[half] / self._shares[half]
        return total if before / _AGREE <= total <= before * _AGREE else None

    def text(self, spent: float) -> str:
        """The rest after so many seconds, or these seconds."""
        rest = None if self._total is None else self._total - spent
        if rest is None or rest <= 0 or rest > self._shown:
            return in_words(spent)
        self._shown = rest
        return f"{in_words(rest)} left"


def in_words(seconds: float) -> str:
    """Seconds as a glance takes them in: 8 s, 3 min, 2.1 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
