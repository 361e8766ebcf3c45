"""Regressions: the newest run of each platform compared with the median of the runs before it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from sqlite3 import Connection, Row

import numpy as np

from webnorm.errors import WebnormError, counted, utf8
from webnorm.lab.report.comparison import (
    BAND,
    ComparedSide,
    Comparison,
    flags_phrase,
    pair_results,
    untimed_comparison,
    with_verdict,
    yardsticks,
)
from webnorm.lab.report.history.series import SeriesQuery
from webnorm.lab.report.history.store import PLATFORM, TIMED, open_for_reading, report_of
from webnorm.lab.results import intervals
from webnorm.lab.results.ranking import grouped
from webnorm.lab.results.result import Cell, Result
from webnorm.lab.results.result_files import json_lines
from webnorm.op.dtypes import Array

SCHEMA = 1
# The columns of a report, without its JSON.
_HEAD = ", ".join(f'"{name}"' for name in ("id", "run", "recorded", "commit", "complete", *PLATFORM))
# Reports with times of one kernel on one shape. The sizes are named as the columns of the store.
_SAME_SHAPE = (
    "SELECT DISTINCT report FROM results WHERE op = ? AND kernel = ? AND rows = ? AND cols = ? "
    f"AND dtype = ? AND {TIMED}"
)
# A change within this many median deviations between runs is normal variation.
_MADS = 3
# Flags whose effect the deviation between runs and the interval already contain.
_NOISE_FLAGS = ("noisy", "few samples")
_WORSE = ("SLOWER", "BROKEN")
_UNKNOWN = ("UNCLEAR", "NOT TIMED")


@dataclass(frozen=True)
class RegressionResult:
    """A result of the newest run, compared with `runs` earlier ones.

    Changes below `band`, a share of the time, count as none. It is None if nothing was compared.
    """

    comparison: Comparison
    runs: int
    band: float | None = None

    @property
    def open(self) -> bool:
        """True if there is a reason instead of a verdict: too few runs, or flags."""
        return self.band is None and self.comparison.verdict == "UNCLEAR"

    @property
    def worse(self) -> bool:
        """True for a regression: a slower kernel, or a kernel that had times and is wrong now."""
        return self.comparison.verdict in _WORSE


@dataclass(frozen=True)
class NewestRun:
    """The newest complete run of a platform that has times, and the verdicts on its results.

    `run` is None and `results` is empty if no run is complete. `interrupted` counts newer, interrupted runs.
    """

    platform: Mapping[str, str]
    run: str | None = None
    recorded: str | None = None
    commit: str | None = None
    interrupted: int = 0
    results: tuple[RegressionResult, ...] = ()

    @property
    def worse(self) -> int:
        """The number of regressions."""
        return sum(one.worse for one in self.results)

    @property
    def unknown(self) -> bool:
        """True if a regression may be hidden.

        Some result is unclear or has lost its time, there are no results, or a newer run was interrupted.
        """
        doubtful = any(one.comparison.verdict in _UNKNOWN for one in self.results)
        return doubtful or not self.results or self.interrupted > 0


@dataclass(frozen=True)
class _Open:
    """A result without its interval, whose width depends on the number of results.

    `new` and `old` are log(time) of the newest run and of earlier ones, as multiples of the time of `copy`
    if it was sampled. `moved` is the increase of log(time) of the copy.
    """

    side: ComparedSide
    copy: Result | None
    new: float
    old: Array
    moved: float


def regressions(store: Path, asked: SeriesQuery, last: int) -> list[NewestRun]:
    """Compare the newest run of each platform with the `last` runs before it.

    A result is compared with results of the same variant, problem and timing method. Raises WebnormError
    without a store, for unknown names, and if `last` is too small.
    """
    if last < intervals.FEWEST_RUNS:
        raise WebnormError(
            f"--last is {last}; it must be at least {intervals.FEWEST_RUNS}, because fewer runs do not show "
            "the noise"
        )
    with open_for_reading(store) as connection:
        where, values = asked.where(connection)
        rows = connection.execute(
            f"SELECT {_HEAD} FROM reports WHERE id IN (SELECT report FROM history WHERE {TIMED} AND {where}) "
            "ORDER BY recorded DESC, id DESC",
            values,
        )
        platforms = grouped(rows, lambda row: tuple(row[name] for name in PLATFORM))
        asked_for = f"SELECT DISTINCT op, kernel FROM history WHERE {where} AND report = ?"
        found = []
        for own in platforms.values():
            whole = [row for row in own if row["complete"] != 0]
            one = NewestRun({name: own[0][name] for name in PLATFORM}, interrupted=len(own) - len(whole))
            if whole:
                newest = whole[0]
                wanted = {tuple(row) for row in connection.execute(asked_for, (*values, newest["id"]))}
                one = replace(
                    one,
                    **{name: newest[name] for name in ("run", "recorded", "commit")},
                    interrupted=own.index(newest),
                    results=_results(connection, whole, wanted, last),
                )
            found.append(one)
    return found


def _results(
    connection: Connection, rows: Sequence[Row], wanted: set[tuple[str, str]], last: int
) -> tuple[RegressionResult, ...]:
    """Return the verdicts on the results of the newest report, the first of the rows."""
    places = {row["id"]: at for at, row in enumerate(rows)}

    @cache
    def sides(number: int) -> Mapping[Hashable, ComparedSide]:
        """Return a report's results by the key that pairs them."""
        return pair_results(report_of(connection, number).results)

    def earlier(key: Hashable, like: Result) -> Iterator[ComparedSide]:
        """Yield timed results of earlier reports that pair with a result of the newest, latest first."""
        shape = (*_names(like), like.problem.batch_size, like.problem.inner, like.problem.dtype)
        same_shape = connection.execute(_SAME_SHAPE, shape)
        before = [number for (number,) in same_shape if places.get(number, 0) > 0]
        found = (sides(number).get(key) for number in sorted(before, key=places.__getitem__))
        return (side for side in found if side is not None and side.result.timed)

    newest = sides(rows[0]["id"])
    own = {key: side for key, side in newest.items() if _names(side.result) in wanted}
    # Copies are the yardstick of the other results, and get verdicts only without those.
    alone = all(side.result.roofline for side in own.values())
    found: list[RegressionResult | _Open] = []
    for key, side in own.items():
        if side.result.roofline == alone:
            compared = _compared(side, earlier(key, side.result), last)
            found += [] if compared is None else [compared]
    # All intervals have to be right at once, as in a comparison of two reports.
    tests = sum(isinstance(one, _Open) for one in found)
    confidence = 1 - (1 - intervals.CONFIDENCE) / max(1, tests)
    return tuple(_with_interval(one, confidence) if isinstance(one, _Open) else one for one in found)


def _names(result: Result) -> tuple[str, str]:
    """Return the op and the kernel as stored in the tables."""
    return utf8(result.op), utf8(result.kernel)


def _compared(
    new: ComparedSide, earlier: Iterator[ComparedSide], last: int
) -> RegressionResult | _Open | None:
    """Compare a result with results of earlier runs, latest first; None if it never had a time."""
    result = new.result
    blank = Comparison(result=result, verdict="UNCLEAR")
    if not result.timed:
        before = next(earlier, None)
        return (
            None if before is None else RegressionResult(untimed_comparison(blank, before.result, result), 1)
        )
    if flags := _serious_flags(result):
        return RegressionResult(replace(blank, reason=f"the newest result {flags_phrase(flags)}"), 0)
    old: list[ComparedSide] = []
    for side in earlier:
        if _timing_setup(side.result) == _timing_setup(result) and not _serious_flags(side.result):
            old.append(side)
        if len(old) == last:
            break
    if len(old) < intervals.FEWEST_RUNS:
        reason = (
            f"too few runs: {counted(len(old), 'earlier run')} to compare with; at least "
            f"{intervals.FEWEST_RUNS} are needed"
        )
        return RegressionResult(replace(blank, reason=reason), len(old))
    copies = [] if result.roofline else yardsticks((new, *old))
    if not copies:
        return _Open(new, None, _level(result), np.array([_level(one.result) for one in old]), 0.0)
    # A noisy copy widens the interval of the ratios, so that it needs no reason of its own.
    if flags := _serious_flags(copies[0]):
        return RegressionResult(replace(blank, reason=f"the newest copy {flags_phrase(flags)}"), len(old))
    shares = [_level(side.result, copy) for side, copy in zip((new, *old), copies, strict=True)]
    own = np.array([_level(copy) for copy in copies])
    return _Open(new, copies[0], shares[0], np.array(shares[1:]), float(own[0] - np.median(own[1:])))


def _serious_flags(result: Result) -> list[str]:
    """Return the flags of a result whose time may not be the kernel's."""
    return [flag for flag in result.flags if flag not in _NOISE_FLAGS]


def _timing_setup(result: Result) -> tuple[Cell, ...]:
    return result.timing_method, result.cache, result.calls


def _level(result: Result, copy: Result | None = None) -> float:
    """Return log(time) of a result, one number for all its runs: see Result.levels."""
    if result.sampled:
        return float(result.levels(copy).mean())
    return math.log(result.median_ns or math.nan)


def _with_interval(one: _Open, confidence: float) -> RegressionResult:
    """Return the verdict with its interval.

    A change within the band counts as none. A larger change has to exceed the variation between runs and the
    variation of samples in the newest run.
    """
    middle = float(np.median(one.old))
    band = max(BAND, _MADS * float(np.median(np.abs(np.expm1(one.old - middle)))))
    shift, reach = one.new - middle, intervals.reach_of_one(one.old, confidence)
    low, high = shift - reach, shift + reach
    result = one.side.result
    if result.sampled:
        over = result.samples_by_run
        under = one.copy.samples_by_run if one.copy else [np.ones_like(own) for own in over]
        own_low, own_high = intervals.ratio_interval(over, [own * math.exp(middle) for own in under])
        # Few samples have no interval; then the variation between runs decides alone.
        if own_high < math.inf and own_low > 0:
            low, high = min(low, math.log(own_low)), max(high, math.log(own_high))
    blank = Comparison(result=result, verdict="UNCLEAR")
    found = with_verdict(blank, shift, low, high, one.moved, band)
    if abs(math.expm1(min(shift, 1.0))) <= band:
        found = replace(found, verdict="SAME", reason=None)
    return RegressionResult(found, len(one.old), band)


def to_json(found: Sequence[NewestRun]) -> str:
    """Return one JSON object per platform, with one line per result; unknown values have no key."""
    platforms = []
    for one in found:
        head = {**one.platform, "run": one.run, "recorded": one.recorded, "commit": one.commit}
        rows = ({**of.comparison.row(), "runs": of.runs, "band": of.band} for of in one.results)
        platforms.append(json_lines(head, "results", rows))
    worse = sum(one.worse for one in found)
    return f'{{"schema": {SCHEMA}, "regressions": {worse}, "platforms": [{", ".join(platforms)}]}}\n'
