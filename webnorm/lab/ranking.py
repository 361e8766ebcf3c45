"""The order of results: the best copy, who is faster than whom, and whom noise does not part."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from webnorm.lab import runs
from webnorm.lab.results import Result
from webnorm.norms.problem import Problem


def by_problem(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """The results of each op and problem with a title, each with the copies of the same shape.

    Copies form a group of their own only where no other op was asked for.
    """
    groups: dict[tuple[str, Problem], list[Result]] = {}
    others = any(not result.roofline for result in results)
    for result in results:
        if not (others and result.roofline):
            groups.setdefault((result.op, result.problem), []).append(result)
    if others:
        for (_, problem), members in groups.items():
            members += (copy for copy in results if copy.roofline and shape(copy.problem) == shape(problem))
    return [(_title(op, problem), members) for (op, problem), members in groups.items()]


def by_kernel(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    """The results of each op and kernel."""
    kernels: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        kernels.setdefault((result.op, result.kernel), []).append(result)
    return kernels


def shape(problem: Problem) -> tuple[int, int, str]:
    """What a copy and another op must share to be compared: rows, cols and dtype."""
    return problem.rows, problem.cols, problem.dtype


def best(results: Sequence[Result]) -> Result | None:
    """The fastest right result, by median; None where nothing is both right and timed."""
    return min((result for result in results if result.timed), key=_median, default=None)


def ranked(results: Sequence[Result]) -> list[Result]:
    """The results of one problem in the order of a table: the best copy, then by time, failures last.

    Time is the median of own sample over the copy's sample of the same round. On llvmpipe, of 209 runs on a
    busy machine 7 had two kernels that are over 10 % apart in the wrong order; by medians of times it was 17.
    """
    copies = [result for result in results if result.roofline]
    others = [result for result in results if not result.roofline]
    if not others:
        return sorted(copies, key=order_of)
    roofline = [best(copies) or copies[0]] if copies else []
    levels = {id(result): level(result, best(copies)) for result in others}
    return roofline + sorted(others, key=lambda result: (order_of(result)[0], levels[id(result)]))


def leader(results: Sequence[Result]) -> Result | None:
    """The first of `ranked` that is timed and no copy; None where there is none."""
    return next((result for result in ranked(results) if result.timed and not result.roofline), None)


def level(result: Result, copy: Result | None) -> float:
    """A result's time as a multiple of a copy's, round by round where they stand in the same ones; without a
    copy its median.
    """
    if copy is None or copy.median_ns is None or not copy.timed:
        return _median(result)
    if not (result.timed and result.beside(copy)):
        return _median(result) / copy.median_ns
    return float(np.median(np.divide(result.samples_ns or (), copy.samples_ns or ())))


def places(ordered: Sequence[Result]) -> list[str]:
    """The rank of each timed result, "" for others. Those that noise does not part share one: "2=" and "2=".

    A result shares the rank before it unless it is slower than the first of that rank, round by round, with
    95 % confidence. Samples so few that no confidence can be had of them give no ranks.
    """
    if any(result.timed and result.sampled and not _tells(result) for result in ordered):
        return [""] * len(ordered)
    ranks: list[int | None] = []
    first: Result | None = None
    rank = 0
    for at, result in enumerate(ordered):
        if result.timed and (first is None or _slower(result, first)):
            first, rank = result, at + 1
        ranks.append(rank if result.timed else None)
    shared = Counter(ranks)
    return ["" if rank is None else f"{rank}=" if shared[rank] > 1 else str(rank) for rank in ranks]


def _tells(result: Result) -> bool:
    """Whether there are samples enough for an interval: see runs.ratio_interval."""
    own = result.samples_by_run
    return runs.ratio_interval(own, own)[1] < math.inf


def _slower(result: Result, other: Result) -> bool:
    if not result.beside(other):
        return True
    return runs.ratio_interval(result.samples_by_run, other.samples_by_run)[0] > 1


def verdict(result: Result) -> str:
    """The status in words: "pass", "FAIL", "expected failure", "skip" or "error"."""
    if result.status == "fail":
        return "expected failure" if result.expected else "FAIL"
    return result.status


def _median(result: Result) -> float:
    return math.inf if result.median_ns is None else result.median_ns


def order_of(result: Result) -> tuple[int, float]:
    """Timed ones by median, then the untimed, then from harmless to grave: the last line is read first."""
    grave = ("pass", "skip", "expected failure", "error", "FAIL")
    return (0, _median(result)) if result.timed else (1 + grave.index(verdict(result)), 0.0)


def _title(op: str, problem: Problem) -> str:
    drawn = "" if problem.distribution == "normal" else f", {problem.distribution}"
    return f"{op} {problem}{drawn}"
