"""The ranking of results: the best copy first, then variants by speed; variants within noise share a rank."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from webnorm.lab.results import intervals
from webnorm.lab.results.result import Result
from webnorm.op.problem import Problem

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def by_problem(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Return the results of each op and problem with a title, including the copies of the same shape.

    Copies form groups of their own only if no other op was requested.
    """
    others = [result for result in results if not result.roofline]
    groups = grouped(others or results, lambda result: (result.op, result.problem))
    if others:
        for (_, problem), members in groups.items():
            members += (copy for copy in results if copy.roofline and shape(copy.problem) == shape(problem))
    return [
        (f"{op} {of}" + ("" if of.distribution == "normal" else f", {of.distribution}"), members)
        for (op, of), members in groups.items()
    ]


def by_kernel(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    """Return the results of each op and kernel."""
    return grouped(results, lambda result: (result.op, result.kernel))


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items of each key, in the order in which the keys first appear."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def shape(problem: Problem) -> tuple[int, int, str]:
    """Return the key by which copies belong to other ops: batch size, elements per batch entry, and dtype."""
    return problem.batch_size, problem.inner, problem.dtype


def best(results: Sequence[Result]) -> Result | None:
    """Return the fastest right result, by median; None if no result is both right and timed."""
    return min((result for result in results if result.timed), key=_median, default=None)


def standings(results: Sequence[Result]) -> list[tuple[Result, str]]:
    """Return the results of one problem in table order, with their ranks.

    The best copy comes first and has no rank; failures come last. Results are ranked by the median of their
    sample divided by the copy's sample of the same round. On llvmpipe on a busy machine, 7 of 209 runs put
    two kernels that differ by over 10 % in the wrong order; with medians of times it was 17.

    Results within noise share a rank ("2=" and "2=") and are sorted by their medians, which the table shows.
    A result gets a new rank only if it is slower than the first result of the rank before, round by round and
    with 95 % confidence. Without enough samples for that confidence no result gets a rank ("").
    """
    copies = [result for result in results if result.roofline]
    others = [result for result in results if not result.roofline]
    if not others:
        return _placed(copies, None)
    roofline = [(best(copies) or copies[0], "")] if copies else []
    return roofline + _placed(others, best(copies))


def ranked(results: Sequence[Result]) -> list[Result]:
    """Return the results in the order of `standings`."""
    return [result for result, _ in standings(results)]


def leader(results: Sequence[Result]) -> Result | None:
    """Return the first timed result of `ranked` that is not a copy, or None."""
    return next((result for result in ranked(results) if result.timed and not result.roofline), None)


def _placed(results: Sequence[Result], copy: Result | None) -> list[tuple[Result, str]]:
    timed = sorted((one for one in results if one.timed), key=lambda one: ratio_to_copy(one, copy))
    ranks = _ranks(timed)
    shared = Counter(ranks)
    placed = sorted(zip(ranks, timed, strict=True), key=lambda pair: (pair[0], _median(pair[1])))
    labels = [(one, f"{rank}=" if shared[rank] > 1 else str(rank)) for rank, one in placed]
    untimed = sorted((one for one in results if not one.timed), key=order_of)
    return [
        *(labels if all(ranks) else [(one, "") for one, _ in labels]),
        *((one, "") for one in untimed),
    ]


def ratio_to_copy(result: Result, copy: Result | None) -> float:
    """Return a result's time as a multiple of a copy's; without a copy its median in nanoseconds.

    Samples are paired by round if both were sampled in the same rounds.
    """
    if copy is None or copy.median_ns is None or not copy.timed:
        return _median(result)
    if not result.shares_rounds(copy):
        return _median(result) / copy.median_ns
    return float(np.median(np.divide(result.samples_ns or (), copy.samples_ns or ())))


def _ranks(timed: Sequence[Result]) -> list[int]:
    """Return the ranks, counted from 1, of results that are sorted by speed; all 0 with too few samples."""
    own = [result.samples_by_run for result in timed if result.sampled]
    if any(intervals.ratio_interval(samples, samples)[1] == math.inf for samples in own):
        return [0] * len(timed)
    ranks: list[int] = []
    first = None
    for at, result in enumerate(timed):
        if first is not None and result.shares_rounds(first):
            low, _ = intervals.ratio_interval(result.samples_by_run, first.samples_by_run)
        else:
            low = math.inf
        if low > 1:
            first, rank = result, at + 1
        ranks.append(rank)
    return ranks


def verdict(result: Result) -> str:
    """Return the status in words: "pass", "FAIL", "expected failure", "skip" or "error"."""
    if result.status == "fail":
        return "expected failure" if result.expected else "FAIL"
    return result.status


def _median(result: Result) -> float:
    return math.inf if result.median_ns is None else result.median_ns


def order_of(result: Result) -> tuple[int, float]:
    """Return the sort key: timed results by median, then untimed ones, the worst last where it is noticed."""
    grave = ("pass", "skip", "expected failure", "error", "FAIL")
    return (0, _median(result)) if result.timed else (1 + grave.index(verdict(result)), 0.0)
