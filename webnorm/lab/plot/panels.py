"""What the panels of a plot show, one for each op and batch, and how each is drawn: lines over the sizes of
the axis, or a row for each kernel where there is but one size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from webnorm.lab.plot.style import INK, label, places, spread, ticks
from webnorm.lab.results.ranking import best, by_kernel, shape
from webnorm.lab.results.result import MOST_GBPS, Result, usable
from webnorm.lab.results.tables import percent_text
from webnorm.op.problem import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation

# The colour and the marker of each kernel.
Looks = Mapping[str, tuple[str, str]]

_RATE = "GB/s (median, p20 to p80)"
# Inches: the least height of lines' axes, and from a label, or a row, to the next.
_LINES_HIGH, _LABEL_HIGH, _ROW_HIGH = 2.8, 0.18, 0.25
# Of the axes' width: where labels begin.
_LABELS_AT = 1.05
# Points: markers, those of more points than would stand apart, what rings add, the gap between texts.
_MARK, _SMALL_MARK, _AROUND, _GAP = 5.5, 3.0, 5.5, 10
_MOST_APART = 16
ROOFLINE: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.4}
_RING: dict[str, Any] = {
    "marker": "o",
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
    "linestyle": "",
}
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


class _Entry(NamedTuple):
    """What has a label: a kernel or the copy."""

    name: str
    colour: str
    marker: str
    line: Mapping[int, PlotPoint]

    @property
    def last(self) -> PlotPoint:
        """The point at the line's right end, the only one of a single size."""
        return list(self.line.values())[-1]


def height(panel: PlotPanel) -> float:
    """Inches that the axes need for their labels."""
    many = len(panel.lines) + bool(panel.copy)
    if len(panel.cols) > 1:
        return max(_LINES_HIGH, many * _LABEL_HIGH)
    return many * _ROW_HIGH


def room(panel: PlotPanel, looks: Looks) -> tuple[float, float]:
    """Inches that the labels take up at the left and at the right of the axes."""
    entries = _entries(panel, looks)
    if len(panel.cols) > 1:
        return 0.0, widest(_end(one, panel) for one in entries)
    numbers = [widest(told(one.last) for one in entries) for told in (_rate, _share)]
    return widest(one.name for one in entries), sum(numbers)


def draw(ax: Axes, panel: PlotPanel, looks: Looks) -> list[Annotation]:
    """Draw a panel; gives the labels that `finish` has to move."""
    entries = _entries(panel, looks)
    if len(panel.cols) == 1:
        _draw_rows(ax, panel, sorted(entries, key=lambda one: one.last.gbps))
        return []
    _draw_lines(ax, panel, entries)
    ends = [(max(one.line), one.last.gbps) for one in entries]
    return [label_line(ax, end, _end(one, panel), one.colour) for end, one in zip(ends, entries, strict=True)]


def finish(figure: Figure, axes: Sequence[Axes], drawn: Sequence[Sequence[Annotation]]) -> None:
    """Hide the axes that have no panel, and move the labels of the others apart."""
    for ax in axes[len(drawn) :]:
        ax.set_visible(False)
    figure.draw_without_rendering()
    # Labels move within the room that they were given.
    figure.set_layout_engine("none")
    for ax, labels in zip(axes, drawn, strict=False):
        _move_apart(ax, labels)


def _move_apart(ax: Axes, labels: Sequence[Annotation]) -> None:
    """Move labels up and down until none covers another; the figure has to have been drawn."""
    from matplotlib.text import Text

    wanted = [float(ax.transData.transform(one.xy)[1]) for one in labels]
    # An Annotation's own extent has its line in it.
    gap = 1.1 * max((Text.get_window_extent(one).height for one in labels), default=0.0)
    for one, place in zip(labels, spread(wanted, gap, ax.bbox.y0, ax.bbox.y1), strict=True):
        one.xyann = (_LABELS_AT, ax.transData.inverted().transform((ax.bbox.x0, place))[1])


def ring_alone(said: str, drawn: bool) -> Line2D:
    """An entry of the legend: the mark of what auto chooses where one is `drawn`, and what is said of it."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=said, markersize=_MARK + _AROUND if drawn else 0.0, **_RING)


def _entries(panel: PlotPanel, looks: Looks) -> list[_Entry]:
    kernels = [_Entry(label(kernel), *looks[kernel], line) for kernel, line in panel.lines.items()]
    return [*kernels, *([_Entry("copy (roofline)", INK, "|", panel.copy)] if panel.copy else [])]


def _draw_lines(ax: Axes, panel: PlotPanel, entries: Sequence[_Entry]) -> None:
    mark = _MARK if len(panel.cols) <= _MOST_APART else _SMALL_MARK
    # Where many bands lie above one another, lines have to be seen through them.
    alpha = min(0.15, 1.5 / len(entries))
    for one in entries:
        cols, (gbps, low, high, _) = list(one.line), zip(*one.line.values(), strict=True)
        if one.line is panel.copy:
            ax.plot(cols, gbps, marker="_" if len(cols) == 1 else "", **ROOFLINE)
        else:
            # The edge is what is seen of a line of one point.
            ax.fill_between(cols, low, high, color=one.colour, alpha=alpha, linewidth=1)
            ax.plot(cols, gbps, color=one.colour, marker=one.marker, markersize=mark, linewidth=1.6)
    rings = [point.gbps for _, point in panel.auto.values()]
    ax.plot(list(panel.auto), rings, markersize=mark + _AROUND, **_RING)
    scale, at = places(panel.cols)
    ax.set_xscale(scale)
    shown = ticks(at)
    ax.set_xticks(shown, list(map(str, shown)))
    ax.set_xticks(panel.cols, [""] * len(panel.cols), minor=True)
    ax.set_xlabel("cols (N)")
    ax.set_ylabel(_RATE)
    ax.set_ylim(bottom=0)
    ax.grid(axis="y")


def label_line(ax: Axes, end: tuple[float, float], said: str, colour: str) -> Annotation:
    """What is said beside the axes, led to from the line's end, wherever that is."""
    return ax.annotate(
        said,
        end,
        (_LABELS_AT, end[1]),
        textcoords=("axes fraction", "data"),
        va="center",
        color=colour,
        arrowprops={
            "arrowstyle": "-",
            "color": colour,
            "linewidth": 0.8,
            "linestyle": ":",
            "relpos": (0, 0.5),
            "shrinkA": 2,
            "shrinkB": 4,
        },
    )


def _end(one: _Entry, panel: PlotPanel) -> str:
    """The label of a line: the share is that of its last cols, which are told where others go further."""
    cols = max(one.line)
    words = [_share(one.last), "" if cols == panel.cols[-1] else f"at {cols}"]
    return f"{one.name}  {' '.join(filter(None, words))}".rstrip()


def _draw_rows(ax: Axes, panel: PlotPanel, entries: Sequence[_Entry]) -> None:
    """The first one is the lowest."""
    for at, one in enumerate(entries):
        point = one.last
        ends = [[max(0.0, point.gbps - point.low)], [max(0.0, point.high - point.gbps)]]
        ax.errorbar(
            point.gbps, at, xerr=ends, color=one.colour, marker=one.marker, markersize=_MARK, capsize=3
        )
    for point in panel.copy.values():
        ax.axvline(point.gbps, zorder=0.9, **ROOFLINE)
    for kernel, point in panel.auto.values():
        at = next(at for at, one in enumerate(entries) if one.line is panel.lines[kernel])
        ax.plot([point.gbps], [at], markersize=_MARK + _AROUND, **_RING)
    ax.set_ylim(-0.7, len(entries) - 0.3)
    ax.set_xlim(left=0)
    ax.set_xlabel(_RATE)
    ax.grid(axis="both")
    ax.set_axisbelow(True)
    _write_rows(ax, entries)


def _write_rows(ax: Axes, entries: Sequence[_Entry]) -> None:
    """Names at the left, at the right the numbers in columns."""
    ax.set_yticks(range(len(entries)), [one.name for one in entries])
    ax.tick_params(axis="y", length=0)
    for text, one in zip(ax.get_yticklabels(), entries, strict=True):
        text.set_color(one.colour)
    right = 0.0
    for told in (_rate, _share):
        right += _GAP + 72 * widest(told(one.last) for one in entries)
        for at, one in enumerate(entries):
            ax.annotate(
                told(one.last),
                (1, at),
                (right, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                va="center",
                color=one.colour,
            )


def _rate(point: PlotPoint) -> str:
    return f"{point.gbps:.4g}"


def _share(point: PlotPoint) -> str:
    """The percentage of copy, "" where there was none."""
    return "" if point.percent_of_copy is None else f"{percent_text(point.percent_of_copy)} %"


def widest(texts: Iterable[str]) -> float:
    """Inches that the widest of some texts takes up."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties()
    sizes = [text_to_path.get_text_width_height_descent(text, font, ismath=False) for text in texts]
    return max(wide for wide, _, _ in sizes) / 72
