"""The order of results: the best copy, who is faster than whom, and whom noise does not part."""

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
    """The results of each op and problem with a title, each with the copies of the same shape.

    Copies form a group of their own only where no other op was asked for.
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
    """The results of each op and kernel."""
    return grouped(results, lambda result: (result.op, result.kernel))


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key, in the order in which keys are first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def shape(problem: Problem) -> tuple[int, int, str]:
    """What a copy and another op must share to be compared: batch, elements of one of it, and dtype."""
    return problem.batch_size, problem.inner, problem.dtype


def best(results: Sequence[Result]) -> Result | None:
    """The fastest right result, by median; None where nothing is both right and timed."""
    return min((result for result in results if result.timed), key=_median, default=None)


def standings(results: Sequence[Result]) -> list[tuple[Result, str]]:
    """The results of one problem in the order of a table, each with its rank: the best copy, which has none,
    then by rank, failures last.

    Ranks go by the median of own sample over the copy's sample of the same round. On llvmpipe, of 209 runs on
    a busy machine 7 had two kernels that are over 10 % apart in the wrong order; by medians of times it was
    17. Those that noise does not part share a rank ("2=" and "2=") and stand by their medians, which are what
    is shown of them. A result shares the rank before it unless it is slower than the first of that rank,
    round by round, with 95 % confidence. Samples so few that no confidence can be had of them part nothing:
    nobody has a rank ("").
    """
    copies = [result for result in results if result.roofline]
    others = [result for result in results if not result.roofline]
    if not others:
        return _placed(copies, None)
    roofline = [(best(copies) or copies[0], "")] if copies else []
    return roofline + _placed(others, best(copies))


def ranked(results: Sequence[Result]) -> list[Result]:
    """The results in the order of `standings`."""
    return [result for result, _ in standings(results)]


def leader(results: Sequence[Result]) -> Result | None:
    """The first of `ranked` that is timed and no copy; None where there is none."""
    return next((result for result in ranked(results) if result.timed and not result.roofline), None)


def _placed(results: Sequence[Result], copy: Result | None) -> list[tuple[Result, str]]:
    timed = sorted((one for one in results if one.timed), key=lambda one: ratio_to_copy(one, copy))
    ranks = _ranks(timed)
    shared = Counter(ranks)
    placed = sorted(zip(ranks, timed, strict=True), key=lambda pair: (pair[0], _median(pair[1])))
    said = [(one, f"{rank}=" if shared[rank] > 1 else str(rank)) for rank, one in placed]
    untimed = sorted((one for one in results if not one.timed), key=order_of)
    return [*(said if all(ranks) else [(one, "") for one, _ in said]), *((one, "") for one in untimed)]


def ratio_to_copy(result: Result, copy: Result | None) -> float:
    """A result's time as a multiple of a copy's, round by round where they stand in the same ones; without a
    copy its median.
    """
    if copy is None or copy.median_ns is None or not copy.timed:
        return _median(result)
    if not result.beside(copy):
        return _median(result) / copy.median_ns
    return float(np.median(np.divide(result.samples_ns or (), copy.samples_ns or ())))


def _ranks(timed: Sequence[Result]) -> list[int]:
    """The rank of each, counted from 1; 0 where nothing can be told apart. The fastest is the first."""
    own = [result.samples_by_run for result in timed if result.sampled]
    if any(intervals.ratio_interval(samples, samples)[1] == math.inf for samples in own):
        return [0] * len(timed)
    ranks: list[int] = []
    first = None
    for at, result in enumerate(timed):
        if first is not None and result.beside(first):
            low, _ = intervals.ratio_interval(result.samples_by_run, first.samples_by_run)
        else:
            low = math.inf
        if low > 1:
            first, rank = result, at + 1
        ranks.append(rank)
    return ranks


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
