"""What became slower: the newest run of each platform, held against the median of those before it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from sqlite3 import Connection, Row

import numpy as np

from webnorm.errors import WebnormError, utf8
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
# Of a report, all but the report.
_HEAD = ", ".join(f'"{name}"' for name in ("id", "run", "recorded", "commit", "complete", *PLATFORM))
# Reports with times of a kernel on a shape: columns of the store, which name the sizes.
_ALIKE = (
    "SELECT DISTINCT report FROM results WHERE op = ? AND kernel = ? AND rows = ? AND cols = ? "
    f"AND dtype = ? AND {TIMED}"
)
# A change within so many of the median deviations between runs is what runs do.
_MADS = 3
# What is in the deviations between runs, and in the interval.
_OF_NOISE = ("noisy", "few samples")
_WORSE = ("SLOWER", "BROKEN")
_UNKNOWN = ("UNCLEAR", "NOT TIMED")


@dataclass(frozen=True)
class RegressionResult:
    """A result of the newest run against `runs` earlier ones; `band` is the share of the time that is no
    change, None where nothing was held against it.
    """

    comparison: Comparison
    runs: int
    band: float | None = None

    @property
    def open(self) -> bool:
        """Whether nothing is said of it but why: too few runs, or flags."""
        return self.band is None and self.comparison.verdict == "UNCLEAR"

    @property
    def worse(self) -> bool:
        """Whether this is a regression: a slower kernel, or one that had times and is wrong now."""
        return self.comparison.verdict in _WORSE


@dataclass(frozen=True)
class NewestRun:
    """The newest run of a platform that has times and came to its end, and what is said of its results: none
    where no run did. `interrupted` counts newer ones that did not.
    """

    platform: Mapping[str, str]
    run: str | None = None
    recorded: str | None = None
    commit: str | None = None
    interrupted: int = 0
    judged: tuple[RegressionResult, ...] = ()

    @property
    def worse(self) -> int:
        """How many regressions there are."""
        return sum(one.worse for one in self.judged)

    @property
    def unknown(self) -> bool:
        """Whether a regression may be hidden: a result is unclear or has no time any more, nothing was
        judged, or a newer run was interrupted.
        """
        doubtful = any(one.comparison.verdict in _UNKNOWN for one in self.judged)
        return doubtful or not self.judged or self.interrupted > 0


@dataclass(frozen=True)
class _Open:
    """A result that awaits how many there are: log(time) of the newest run and of those before it, as a
    multiple of a copy's if `copy` has samples of the newest, and by how much log(time) of the copy grew.
    """

    side: ComparedSide
    copy: Result | None
    new: float
    old: Array
    moved: float


def regressions(store: Path, asked: SeriesQuery, last: int) -> list[NewestRun]:
    """For each platform its newest run against the last so many before it that have the same variant, problem
    and way of timing. WebnormError for no store, for names that nothing has, and for a `last` of too few.
    """
    if last < intervals.FEWEST_RUNS:
        raise WebnormError(
            f"--last is {last}; expected {intervals.FEWEST_RUNS} or more: fewer tell nothing of noise"
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
                    judged=_judged(connection, whole, wanted, last),
                )
            found.append(one)
    return found


def _judged(
    connection: Connection, rows: Sequence[Row], wanted: set[tuple[str, str]], last: int
) -> tuple[RegressionResult, ...]:
    """What is said of the newest report's results, which is the first of the rows."""
    places = {row["id"]: at for at, row in enumerate(rows)}

    @cache
    def sides(number: int) -> Mapping[Hashable, ComparedSide]:
        """A report's results by what makes a pair."""
        return pair_results(report_of(connection, number).results)

    def earlier(key: Hashable, like: Result) -> Iterator[ComparedSide]:
        """Timed results of earlier reports that pair with one of the newest, the last one first."""
        of = (*_names(like), like.problem.batch_size, like.problem.inner, like.problem.dtype)
        alike = connection.execute(_ALIKE, of)
        before = [number for (number,) in alike if places.get(number, 0) > 0]
        found = (sides(number).get(key) for number in sorted(before, key=places.__getitem__))
        return (side for side in found if side is not None and side.result.timed)

    newest = sides(rows[0]["id"])
    own = {key: side for key, side in newest.items() if _names(side.result) in wanted}
    # Copies are what the others are held against.
    alone = all(side.result.roofline for side in own.values())
    found: list[RegressionResult | _Open] = []
    for key, side in own.items():
        if side.result.roofline == alone:
            held = _held(side, earlier(key, side.result), last)
            found += [] if held is None else [held]
    # As in a comparison of two reports: all intervals are to hold at once.
    tests = sum(isinstance(one, _Open) for one in found)
    confidence = 1 - (1 - intervals.CONFIDENCE) / max(1, tests)
    return tuple(_concluded(one, confidence) if isinstance(one, _Open) else one for one in found)


def _names(result: Result) -> tuple[str, str]:
    """Op and kernel as the tables have them."""
    return utf8(result.op), utf8(result.kernel)


def _held(new: ComparedSide, earlier: Iterator[ComparedSide], last: int) -> RegressionResult | _Open | None:
    """A result against those of earlier runs, the newest first; None for one that never had a time."""
    result = new.result
    blank = Comparison(result=result, verdict="UNCLEAR")
    if not result.timed:
        before = next(earlier, None)
        return (
            None if before is None else RegressionResult(untimed_comparison(blank, before.result, result), 1)
        )
    if flags := _telling(result):
        return RegressionResult(replace(blank, reason=f"the newest result {flags_phrase(flags)}"), 0)
    old: list[ComparedSide] = []
    for side in earlier:
        if _way(side.result) == _way(result) and not _telling(side.result):
            old.append(side)
        if len(old) == last:
            break
    if len(old) < intervals.FEWEST_RUNS:
        count = f"{len(old)} earlier run{'' if len(old) == 1 else 's'} to hold it against"
        reason = f"too few runs: {count}; expected {intervals.FEWEST_RUNS} or more"
        return RegressionResult(replace(blank, reason=reason), len(old))
    copies = [] if result.roofline else yardsticks((new, *old))
    if not copies:
        return _Open(new, None, _level(result), np.array([_level(one.result) for one in old]), 0.0)
    # The noise of its times is in the shares.
    if flags := _telling(copies[0]):
        return RegressionResult(replace(blank, reason=f"the newest copy {flags_phrase(flags)}"), len(old))
    shares = [_level(side.result, copy) for side, copy in zip((new, *old), copies, strict=True)]
    own = np.array([_level(copy) for copy in copies])
    return _Open(new, copies[0], shares[0], np.array(shares[1:]), float(own[0] - np.median(own[1:])))


def _telling(result: Result) -> list[str]:
    """The flags that say that a time is not the kernel's."""
    return [flag for flag in result.flags if flag not in _OF_NOISE]


def _way(result: Result) -> tuple[Cell, ...]:
    return result.timing_method, result.cache, result.calls


def _level(result: Result, copy: Result | None = None) -> float:
    """log(time) of a report's result, one figure whatever runs it has: see Result.levels."""
    if result.sampled:
        return float(result.levels(copy).mean())
    return math.log(result.median_ns or math.nan)


def _concluded(one: _Open, confidence: float) -> RegressionResult:
    """The verdict: within the band nothing changed. Beyond it a change needs to be more than another run
    would differ by, and more than the samples of the newest run vary.
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
        # Of few samples none has an interval; then what lies between runs has to tell.
        if own_high < math.inf and own_low > 0:
            low, high = min(low, math.log(own_low)), max(high, math.log(own_high))
    blank = Comparison(result=result, verdict="UNCLEAR")
    found = with_verdict(blank, shift, low, high, one.moved, band)
    if abs(math.expm1(min(shift, 1.0))) <= band:
        found = replace(found, verdict="SAME", reason=None)
    return RegressionResult(found, len(one.old), band)


def to_json(found: Sequence[NewestRun]) -> str:
    """An object for each platform, with a line for each result; what is not known has no key."""
    told = []
    for one in found:
        head = {**one.platform, "run": one.run, "recorded": one.recorded, "commit": one.commit}
        rows = ({**of.comparison.row(), "runs": of.runs, "band": of.band} for of in one.judged)
        told.append(json_lines(head, "results", rows))
    worse = sum(one.worse for one in found)
    return f'{{"schema": {SCHEMA}, "regressions": {worse}, "platforms": [{", ".join(told)}]}}\n'
