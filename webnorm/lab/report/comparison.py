"""Comparison of two reports: which results are faster, slower or unclear."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import numpy as np

from webnorm.errors import WebnormError
from webnorm.lab.results import intervals
from webnorm.lab.results.ranking import grouped, shape
from webnorm.lab.results.result import PROBLEM_KEYS, Cell, Report, Result
from webnorm.lab.results.tables import time_ratio_text
from webnorm.op.dtypes import Array
from webnorm.op.problem import Problem

Verdict = Literal["SAME", "FASTER", "SLOWER", "UNCLEAR", "BROKEN", "NOT TIMED", "ONLY IN OLD", "ONLY IN NEW"]

# Smaller differences count as no difference: they are not worth changing a kernel for.
BAND = 0.02
# Two devices are the same for a comparison of times if these agree.
DEVICE_KEYS = ("adapter", "vendor", "driver", "backend", "type")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of one variant on one problem in two reports.

    `result` is the result of the old report, or of the new one if only the new report contains it.
    `ratio` is the new time divided by the old time; above 1 is slower. If a copy ran in the same rounds, both
    times are multiples of the copy's time. `low` and `high` bound `ratio`: with 95 % confidence all intervals
    of the two reports are right. They are None without two times, or if the variation between runs is
    unknown; `reason` then says why. `timed_before` is true if the old report has a time.
    """

    result: Result
    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    timed_before: bool = True

    def row(self) -> dict[str, Cell]:
        """Return a flat table row: the variant, the problem, and the verdict with its numbers."""
        of = self.result.row()
        named = ("op", "kernel", "constants", *PROBLEM_KEYS, "case")
        found = {name: getattr(self, name) for name in ("verdict", "ratio", "low", "high", "reason")}
        return {**{name: of[name] for name in named if name != "seed"}, **found}


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The change of the copies between two reports: the machine's effect on unchanged code.

    `ratio` is the new time divided by the old time, as geometric mean over `problems` problems. `low` and
    `high` bound it with 95 % confidence. `spread` is the standard deviation between runs, as a share of the
    time. These three are None if there is only one run. The rates are in GB/s and known for a single problem
    only. They come from the same times, so that their quotient is the ratio.
    """

    problems: int
    ratio: float
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    old_gbps: float | None = None
    new_gbps: float | None = None


@dataclass(frozen=True)
class Verdicts:
    """The comparisons of two reports; `drift` is None if the reports share no copy.

    `incomplete` lists the reports ("OLD", "NEW") of interrupted runs.
    """

    comparisons: tuple[Comparison, ...]
    drift: Drift | None
    incomplete: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def unclear(self) -> int:
        """The number of UNCLEAR comparisons."""
        return sum(one.verdict == "UNCLEAR" for one in self.comparisons)

    @property
    def known(self) -> bool:
        """True if any comparison has a result: the same time, a faster or slower one, or a broken kernel."""
        clear = (one for one in self.comparisons if one.verdict != "UNCLEAR")
        return any(one.verdict == "BROKEN" or one.ratio is not None for one in clear)

    def rows(self) -> list[dict[str, Cell]]:
        """Return the comparisons as flat rows, for example for pandas.DataFrame."""
        return [one.row() for one in self.comparisons]


@dataclass(frozen=True)
class ComparedSide:
    """A result of one report, and the copies that were timed in its rounds, by variant name."""

    result: Result
    copies: Mapping[Hashable, Result] = field(default_factory=dict)


@dataclass(frozen=True)
class _Open:
    """A comparison without its interval, whose width depends on the number of comparisons.

    `old` and `new` are log(time) of each run, as multiples of a copy's time if `shares`. `moved` is the
    increase of log(time) of that copy.
    """

    comparison: Comparison
    old: Array
    new: Array
    shares: bool
    moved: float


def compare(old: Report, new: Report, *, any_device: bool = False) -> Verdicts:
    """Pair the results by op, kernel, constants, problem and case, and compare each pair.

    Results are grouped by problem, in the old report's order; those that only the new report contains follow.
    Copies are the yardstick of the other results. A copy that was timed in both reports, or that only one
    report contains, is compared only if there are no other results. Raises WebnormError if the devices
    differ, unless `any_device`, and if the reports share no problem.
    """
    if not any_device:
        require_same_device(old.device, new.device)
    copies = any(all(one.roofline for one in side.results) for side in (old, new))
    require_common(problem_labels(old.results, copies), problem_labels(new.results, copies))
    before, after = pair_results(old.results), pair_results(new.results)
    pairs = [(before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after))]
    compared = [_compare_pair(*pair) for pair in pairs if not _is_yardstick(*pair)]
    compared = compared or [_compare_pair(*pair) for pair in pairs]
    # All intervals have to be right at once. Otherwise one of twenty unchanged kernels would get a verdict.
    tests = sum(isinstance(one, _Open) for one in compared)
    confidence = 1 - (1 - intervals.CONFIDENCE) / max(1, tests)
    bare = sum(isinstance(one, _Open) and not one.shares for one in compared)
    remark = (
        f"{bare} without a copy that both reports contain: plain times are compared, which include changes "
        "of the machine"
    )
    found = [
        with_verdict(one.comparison, *intervals.difference(one.old, one.new, confidence), one.moved)
        if isinstance(one, _Open)
        else one
        for one in compared
    ]
    problems = grouped(found, lambda one: problem_key(one.result.op, one.result.problem, one.result.case))
    return Verdicts(
        tuple(chain.from_iterable(problems.values())),
        _drift(pairs),
        tuple(age for age, report in (("OLD", old), ("NEW", new)) if report.complete is False),
        (remark,) if bare else (),
    )


def gate_failures(verdicts: Verdicts, percent: float, *, fail_unclear: bool = False) -> list[str]:
    """Return one line per reason to fail a gate against slowdowns of more than `percent`.

    Raises WebnormError unless `percent` is 0 or more.
    """
    if not (percent >= 0 and math.isfinite(percent)):
        raise WebnormError(f"percent is {percent}; it must be a finite number of at least 0")
    limit = 1 + percent / 100
    slower = sum(one.verdict == "SLOWER" and (one.ratio or math.inf) > limit for one in verdicts.comparisons)
    broken = sum(one.verdict == "BROKEN" for one in verdicts.comparisons)
    lines = [*_counted(slower, f"slower by more than {percent:g} %"), *_counted(broken, "broken")]
    return [*lines, *(_counted(verdicts.unclear, "unclear") if fail_unclear else ())]


def gate_unknowns(verdicts: Verdicts, percent: float, *, allow_missing: bool = False) -> list[str]:
    """Return one line per reason why the gate cannot pass or fail.

    Reasons are missing results, and UNCLEAR ones that may be slower by more than `percent`. `allow_missing`
    accepts results that only the old report contains, results without a time in the new report, and reports
    of interrupted runs.
    """
    limit = 1 + percent / 100
    missing = doubtful = 0
    for one in verdicts.comparisons:
        missing += one.verdict == "ONLY IN OLD" or (one.verdict == "NOT TIMED" and one.timed_before)
        doubtful += one.verdict == "UNCLEAR" and (one.high is None or one.high > limit)
    lines = [] if allow_missing else _counted(missing, "missing in NEW")
    if not allow_missing:
        lines += [f"{age} comes from an interrupted run" for age in verdicts.incomplete]
    if not any(one.low is not None for one in verdicts.comparisons):
        return [*lines, "nothing could be compared"]
    return [*lines, *_counted(doubtful, f"unclear, and may be slower by more than {percent:g} %")]


def _counted(count: int, what: str) -> list[str]:
    return [f"{count} {'is' if count == 1 else 'are'} {what}"] if count else []


def require_same_device(old: Mapping[str, object], new: Mapping[str, object]) -> None:
    """Raise WebnormError if two reports' devices differ in anything that affects times."""
    for key in DEVICE_KEYS:
        if old.get(key) != new.get(key):
            raise WebnormError(
                f"the devices differ: {key} is {old.get(key)!r} in the old report and {new.get(key)!r} in "
                "the new one; use --any-device (any_device=True) to compare times of different devices"
            )


def problem_labels(results: Sequence[Result], copies: bool = False) -> dict[Hashable, str]:
    """Return the label of each problem in the results, by the problem's key.

    Problems of copies count only if `copies`: they say nothing if there are other results to compare.
    """
    own = (one for one in results if copies or not one.roofline)
    return dict(problem_key(one.op, one.problem, one.case) for one in own)


def problem_key(op: str, problem: Problem, case: str | None = None) -> tuple[Hashable, str]:
    """Return a problem's key and label. The key ignores the seed, which changes no time."""
    return (op, replace(problem, seed=0), case), f"{op}, {problem}" + (f", {case}" if case else "")


def require_common(old: Mapping[Hashable, str], new: Mapping[Hashable, str]) -> None:
    """Raise WebnormError if two reports have no problem in common; arguments come from `problem_labels`."""
    if not old.keys() & new.keys():
        found = (
            f"{first_and_more([*own.values()])} in the {age} one" for age, own in (("old", old), ("new", new))
        )
        raise WebnormError(f"the reports have no problem in common: {', '.join(found)}")


def first_and_more(names: Sequence[str]) -> str:
    """Return the first name and the number of further ones."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else "none"


def pair_results(results: Sequence[Result]) -> dict[Hashable, ComparedSide]:
    """Return the results by the key that pairs them; repeated measurements are paired in order."""
    seen: Counter[Hashable] = Counter()
    found: dict[Hashable, ComparedSide] = {}
    for members in _tasks(results):
        copies = {_name(one): one for one in members if one.roofline and one.timed}
        for result in members:
            name = _name(result)
            found[(name, seen[name])] = ComparedSide(result, copies)
            seen[name] += 1
    return found


def _tasks(results: Sequence[Result]) -> Iterator[list[Result]]:
    """Yield the results that were timed together: the copies of a problem come before the other results."""
    members: list[Result] = []
    for result in results:
        began = result.roofline and members and not members[-1].roofline
        if began or (members and shape(result.problem) != shape(members[-1].problem)):
            yield members
            members = []
        members.append(result)
    yield members


def _name(result: Result) -> Hashable:
    problem, _ = problem_key(result.op, result.problem, result.case)
    return problem, result.kernel, frozenset(result.constants.items())


def _is_yardstick(old: ComparedSide | None, new: ComparedSide | None) -> bool:
    """Return true for a copy that was timed in both reports, or that only one report contains."""
    found = [side.result for side in (old, new) if side]
    return found[0].roofline and (len(found) == 1 or all(one.timed for one in found))


def yardsticks(sides: Sequence[ComparedSide]) -> list[Result]:
    """Return one copy's result in each report: the first report's fastest copy that ran in the same rounds.

    The list is empty if no copy of all reports ran in the rounds of the results.
    """
    first = sides[0].copies
    common = [
        name
        for name in first
        if all(name in one.copies and one.copies[name].shares_rounds(one.result) for one in sides)
    ]
    best = min(common, key=lambda name: first[name].median_ns or math.inf, default=None)
    return [] if best is None else [one.copies[best] for one in sides]


def _compare_pair(old: ComparedSide | None, new: ComparedSide | None) -> Comparison | _Open:
    either = old or new
    assert either is not None
    timed_before = old is not None and old.result.timed
    blank = Comparison(result=either.result, verdict="UNCLEAR", timed_before=timed_before)
    if new is None:
        return replace(blank, verdict="ONLY IN OLD")
    if old is None:
        return replace(blank, verdict="ONLY IN NEW")
    before, after = old.result, new.result
    if not (before.timed and after.timed):
        return untimed_comparison(blank, before, after)
    for what, was, now in (
        ("timing method", before.timing_method, after.timing_method),
        ("cache", before.cache, after.cache),
        ("call method", before.calls, after.calls),
    ):
        if was != now:
            return replace(blank, reason=f"{what} was {was!r} and is {now!r}")
    if not (before.sampled and after.sampled):
        return replace(blank, reason="samples are missing, or one is not a positive, finite time")
    # Equal lists are one recording: two measurements never give the same list of nanoseconds.
    if before.samples_ns == after.samples_ns:
        return replace(
            blank, verdict="SAME", ratio=1.0, low=1.0, high=1.0, reason="the samples are identical"
        )
    copies = [] if before.roofline else yardsticks((old, new))
    old_copy, new_copy = copies or (None, None)
    level, new_level = before.levels(old_copy), after.levels(new_copy)
    blank = replace(blank, ratio=math.exp(float(new_level.mean() - level.mean())))
    reason = timing_doubt((before, after), copies)
    if reason:
        return replace(blank, reason=reason)
    moved = float(copies[1].levels().mean() - copies[0].levels().mean()) if copies else 0.0
    return _Open(blank, level, new_level, shares=bool(copies), moved=moved)


def timing_doubt(results: Sequence[Result], copies: Sequence[Result]) -> str | None:
    """Return the reason why two timed results cannot be compared, or None."""
    for age, result in zip(("old", "new"), results, strict=True):
        if result.flags:
            return f"the {age} result {flags_phrase(result.flags)}"
    for age, copy in zip(("old", "new"), copies, strict=False):
        # A noisy copy widens the interval of the ratios, so that it needs no reason of its own.
        if flags := [flag for flag in copy.flags if flag != "noisy"]:
            return f"the {age} copy {flags_phrase(flags)}"
    fewest, most = sorted(len(result.samples_by_run) for result in results)
    if fewest < intervals.FEWEST_RUNS:
        many = f"{fewest} run{'s' if fewest > 1 else ''} {'each' if fewest == most else 'on one side'}"
        few = intervals.FEWEST_RUNS
        return f"{many}; at least {few} show the variation between runs: webnorm bench --runs 5"
    return None


def flags_phrase(flags: Sequence[str]) -> str:
    """Return the flags as the end of a sentence: "is noisy", "has few samples"."""
    few = [flag for flag in flags if flag == "few samples"]
    others = [flag for flag in flags if flag not in few]
    said = [f"is {', '.join(others)}"] if others else []
    return " and ".join([*said, *(f"has {flag}" for flag in few)])


def untimed_comparison(blank: Comparison, old: Result, new: Result) -> Comparison:
    """Return the comparison of two results if one or both have no time."""
    if not old.timed and not new.timed and old.status == new.status:
        return replace(blank, verdict="SAME", reason=f"neither was timed: {new.status!r} in both")
    age, result = ("new", new) if old.timed else ("old", old)
    broken = old.timed and new.status != "skip"
    why = f": {result.reason}" if result.reason else ""
    return replace(
        blank,
        verdict="BROKEN" if broken else "NOT TIMED",
        reason=f"the {age} result is {result.status!r} and has no time{why}",
    )


def with_verdict(
    blank: Comparison, shift: float, low: float, high: float, moved: float, band: float = BAND
) -> Comparison:
    """Return a comparison with its verdict.

    `shift`, `low` and `high` are log(new / old) and its interval. `moved` is the increase of log(time) of the
    copy that both times are multiples of. Changes below `band`, a share of the time, are negligible.
    """
    ratio, least, most = map(_ratio, (shift, low, high))
    found = replace(blank, ratio=ratio, low=least, high=most, verdict=_verdict(ratio, least, most, band))
    # A machine that slows the copy down does not slow other kernels down by exactly as much.
    if found.verdict in ("FASTER", "SLOWER") and abs(shift) <= abs(moved):
        reason = f"the copy itself takes {time_ratio_text(math.exp(moved), 0)}, which is a larger change"
        return replace(found, verdict="UNCLEAR", reason=reason)
    return found


def _ratio(logarithm: float) -> float:
    # The interval of a few runs with very different times can exceed float64.
    return math.exp(min(logarithm, 700.0))


def _verdict(ratio: float, low: float, high: float, band: float) -> Verdict:
    """Return the verdict. A change needs an interval without 1 (no chance) and a ratio beyond the band."""
    if low >= 1 - band and high <= 1 + band:
        return "SAME"
    if low > 1 and ratio > 1 + band:
        return "SLOWER"
    if high < 1 and ratio < 1 - band:
        return "FASTER"
    return "UNCLEAR"


def _gbps(copy: Result, levels: Array) -> float | None:
    """Return GB/s at the mean of log(time) over the runs, which comparisons use."""
    return None if copy.bytes is None else copy.bytes / math.exp(float(levels.mean()))


def _drift(pairs: Sequence[tuple[ComparedSide | None, ComparedSide | None]]) -> Drift | None:
    """Return the change of the copies that serve as yardstick."""
    found = {
        (_name(copies[0]), copies[0].samples_ns): copies
        for old, new in pairs
        if old and new and old.result.timed and new.result.timed and (copies := yardsticks((old, new)))
    }
    if not found:
        return None
    levels = [tuple(copy.levels() for copy in copies) for copies in found.values()]
    drift = Drift(
        problems=len(levels),
        ratio=math.exp(float(np.mean([new.mean() - old.mean() for old, new in levels]))),
    )
    if len(levels) == 1:
        ((old_copy, new_copy),), ((old, new),) = found.values(), levels
        drift = replace(drift, old_gbps=_gbps(old_copy, old), new_gbps=_gbps(new_copy, new))
    counts = {(len(old), len(new)) for old, new in levels}
    if len(counts) != 1 or min(min(counts)) < 2:
        return drift
    # Each run measures all problems, so that their mean is one number per run.
    old, new = (np.mean([pair[side] for pair in levels], axis=0) for side in (0, 1))
    _, low, high = map(_ratio, intervals.difference(old, new, intervals.CONFIDENCE))
    spread = math.sqrt((old.var(ddof=1) + new.var(ddof=1)) / 2)
    return replace(drift, low=low, high=high, spread=math.expm1(spread))
