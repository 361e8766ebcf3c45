"""What a plot shows: points of each kernel over the columns, in a panel for each op and number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from webnorm.lab.results.ranking import best, by_kernel, shape
from webnorm.lab.results.result import MOST_GBPS, Result, usable
from webnorm.op.problem import Problem

# Axes cannot tell less from 0.
_LEAST_GBPS = 1e-9


class PlotPoint(NamedTuple):
    """GB/s at the median, and at p80 and p20 of the time, where those are known; the share of the copy."""

    gbps: float
    low: float
    high: float
    percent_of_copy: float | None


@dataclass(frozen=True)
class PlotPanel:
    """Lines of one op: kernel -> cols -> point. `family` is the problem but for its cols.

    `auto` has the kernel that auto takes for each cols and the point of that very variant.
    """

    op: str
    family: Problem
    lines: Mapping[str, Mapping[int, PlotPoint]]
    copy: Mapping[int, PlotPoint]
    auto: Mapping[int, tuple[str, PlotPoint]]

    @property
    def sizes(self) -> set[int]:
        """The numbers of columns of the kernels' points."""
        return {cols for line in self.lines.values() for cols in line}

    @property
    def cols(self) -> list[int]:
        """All numbers of columns, ascending."""
        return sorted(self.sizes | set(self.copy))


def panels(results: Sequence[Result]) -> list[PlotPanel]:
    """In order of appearance, the batch ascending within an op; copies alone make panels of their own."""
    drawable = [result for result in results if result.timed and _point(result)]
    others = [result for result in drawable if not result.roofline]
    families: dict[tuple[str, Problem], list[Result]] = {}
    for result in others or drawable:
        families.setdefault((result.op, _without_axis(result.problem)), []).append(result)
    found = []
    for (op, family), members in families.items():
        lines = {kernel: _best_points(own) for (_, kernel), own in by_kernel(members).items()}
        beside = [
            result
            for result in drawable
            if others and result.roofline and shape(_without_axis(result.problem)) == shape(family)
        ]
        auto = {
            one.problem.axis: (one.kernel, point) for one in members if one.auto and (point := _point(one))
        }
        found.append(PlotPanel(op, family, lines, _best_points(beside), auto))
    ops = list(dict.fromkeys(panel.op for panel in found))
    return sorted(found, key=lambda panel: (ops.index(panel.op), panel.family.batch))


def _without_axis(problem: Problem) -> Problem:
    changed: Problem = replace(problem, **cast(Any, {problem.AXIS: 1}))
    return changed


def _best_points(results: Sequence[Result]) -> dict[int, PlotPoint]:
    cols = sorted({result.problem.axis for result in results})
    winners = {n: best([result for result in results if result.problem.axis == n]) for n in cols}
    return {n: point for n, winner in winners.items() if winner and (point := _point(winner))}


def _point(result: Result) -> PlotPoint | None:
    gbps, median = result.gbps, result.median_ns
    if gbps is None or median is None or not _LEAST_GBPS < gbps < MOST_GBPS:
        return None

    def at(time: float | None) -> float:
        found = gbps * median / time if time is not None and usable((time,)) else gbps
        return found if _LEAST_GBPS < found < MOST_GBPS else gbps

    return PlotPoint(gbps, at(result.p80_ns), at(result.p20_ns), result.percent_of_copy)
