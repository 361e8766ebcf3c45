"""Throughput as a picture: GB/s over the sizes of the axis, the device's name above, a panel for each op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from webnorm.errors import WebnormError
from webnorm.files.atomic import replacing
from webnorm.lab.plot import drawing
from webnorm.lab.plot.style import INK, label, places, spread, styles, ticks, wrapped
from webnorm.lab.results.ranking import best, by_kernel, grouped, shape
from webnorm.lab.results.result import MOST_GBPS, Report, Result, usable
from webnorm.lab.results.tables import percent_text
from webnorm.op.problem import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation

# Panels side by side before a new line of them begins.
_PANELS_ACROSS = 2
# Inches: the axes' width in one panel and in each of several, what stands beside and above the axes, and
# above and below all panels.
_ALONE, _OF_SEVERAL, _BESIDE, _ABOVE, _AROUND = 4.8, 3.8, 0.9, 0.9, 0.7
# The colour and the marker of each kernel.
Looks = Mapping[str, tuple[str, str]]
_RATE = "GB/s (median, p20 to p80)"
# Inches: the least height of lines' axes, and from a label, or a row, to the next.
_LINES_HIGH, _LABEL_HIGH, _ROW_HIGH = 2.8, 0.18, 0.25
# Of the axes' width: where labels begin.
_LABELS_AT = 1.05
# Points: markers, those of more points than would stand apart, what rings add, the gap between texts.
_MARK, _SMALL_MARK, _RING_ADDS, _GAP = 5.5, 3.0, 5.5, 10
_MOST_APART = 16
ROOFLINE: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.4}
_RING: dict[str, Any] = {
    "marker": "o",
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
    "linestyle": "",
}
# Axes do not distinguish less from 0.
_LEAST_GBPS = 1e-9


def file_format(path: Path) -> str:
    """The format that the name of a picture asks for, "svg" or "png"; WebnormError for any other."""
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise WebnormError(f"cannot draw {path}: its suffix is {suffix!r}; expected .svg or .png")
    return suffix[1:]


def check_plot(path: Path) -> None:
    """Raise WebnormError where a picture of this name cannot be drawn here, whatever it shows."""
    drawing.check_drawing(file_format(path))


def plot(report: Report, path: Path) -> None:
    """Draw the report's right and timed results into an .svg or .png file without a background.

    GB/s (the op's minimum bytes over the median time) over the sizes of the axis, the best variant of each
    kernel at each size, a band from p20 to p80, a panel for each op and batch. A single size becomes a row
    for each kernel. Rings mark what auto chooses; where that was not timed the legend says so.
    Raises WebnormError for another suffix, without matplotlib, and where nothing was timed.
    """
    form = file_format(path)
    if not panels(report.results):
        raise WebnormError(f"cannot draw {path}: no result in the report is both right and timed")
    with replacing(path) as beside:
        beside.write_bytes(_drawn(report, form))


def svg(report: Report) -> str:
    """The same as an SVG element, for a page; "" without matplotlib, and where nothing is right and timed."""
    if not (drawing.is_installed() and panels(report.results)):
        return ""
    text = _drawn(report, "svg").decode()
    return text[text.index("<svg") :]


def _drawn(report: Report, form: str) -> bytes:
    adapter = str(report.device.get("adapter", "unknown device"))
    return drawing.draw_in_process(form, _figure, panels(report.results), adapter)


def _figure(found: Sequence[PlotPanel], adapter: str) -> Figure:
    """The panels in a grid, of which those of one line are equally high."""
    from matplotlib.figure import Figure

    looks = styles(kernel for panel in found for kernel in panel.lines)
    across = min(len(found), _PANELS_ACROSS)
    wide = _ALONE if across == 1 else _OF_SEVERAL
    lines = [found[at : at + across] for at in range(0, len(found), across)]
    heights = [max(map(_height, line)) for line in lines]
    # Axes of one column begin and end together.
    left, right = map(max, zip(*(_room(panel, looks) for panel in found), strict=True))
    size = across * (left + wide + right + _BESIDE), sum(heights) + len(lines) * _ABOVE + _AROUND
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes = list(figure.subplots(len(lines), across, squeeze=False, height_ratios=heights).flat)
    drawn = [_draw(ax, panel, looks) for ax, panel in zip(axes, found, strict=False)]
    for panel, ax in zip(found, axes, strict=False):
        ax.set_title(wrapped(_panel_title(panel, found), wide))
    dtypes = ", ".join(dict.fromkeys(panel.family.dtype for panel in found))
    figure.suptitle(wrapped(f"{label(adapter)}, {dtypes}", size[0]), fontsize=11)
    if any(panel.op != "copy" for panel in found):
        figure.legend(
            handles=[_legend_of_auto(found)], loc="outside lower right", frameon=False, handletextpad=0.3
        )
    finish(figure, axes, drawn)
    return figure


def _legend_of_auto(found: Sequence[PlotPanel]) -> Line2D:
    """What the legend says of auto's choices, with their mark where any has a ring."""
    from matplotlib.lines import Line2D

    rings, every = sum(len(panel.auto) for panel in found), sum(len(panel.sizes) for panel in found)
    where = ("" if rings == every else ", where it was timed") if rings else " was not timed"
    mark = _MARK + _RING_ADDS if rings else 0.0
    return Line2D([], [], label=f"what auto chooses{where}", markersize=mark, **_RING)


def _panel_title(panel: PlotPanel, found: Sequence[PlotPanel]) -> str:
    # What the problem says of itself after its sizes and dtype, such as "no bias".
    _, _, extras = str(panel.family).partition(panel.family.dtype)
    several = len({one.family.dtype for one in found}) > 1
    parts = (
        f"{label(panel.op)}, {panel.family.BATCH} {panel.family.batch_size}",
        f", {panel.family.AXIS} {panel.lengths[0]}" if len(panel.lengths) == 1 else "",
        f", {panel.family.dtype}" if several else "",
        extras,
        "" if panel.family.distribution == "normal" else f", {panel.family.distribution}",
    )
    return "".join(parts)


# --- panels: what each shows, and how it is drawn


class PlotPoint(NamedTuple):
    """GB/s at the median, and at p80 and p20 of the time, where those are known; the share of the copy."""

    gbps: float
    low: float
    high: float
    percent_of_copy: float | None


@dataclass(frozen=True)
class PlotPanel:
    """Lines of one op: kernel -> size of the axis -> point. `family` is the problem but for that size.

    `auto` has the kernel that auto takes for each size and the point of that very variant.
    """

    op: str
    family: Problem
    lines: Mapping[str, Mapping[int, PlotPoint]]
    copy: Mapping[int, PlotPoint]
    auto: Mapping[int, tuple[str, PlotPoint]]

    @property
    def sizes(self) -> set[int]:
        """The sizes of the axis that the kernels have points at."""
        return {size for line in self.lines.values() for size in line}

    @property
    def lengths(self) -> list[int]:
        """All sizes of the axis, ascending."""
        return sorted(self.sizes | set(self.copy))


def panels(results: Sequence[Result]) -> list[PlotPanel]:
    """In order of appearance, the batch ascending within an op; copies alone make panels of their own."""
    drawable = [result for result in results if result.timed and _point(result)]
    others = [result for result in drawable if not result.roofline]
    copies = [result for result in drawable if others and result.roofline]
    families = grouped(others or drawable, lambda one: (one.op, _without_axis(one.problem)))
    found = []
    for (op, family), members in families.items():
        lines = {kernel: _best_points(own) for (_, kernel), own in by_kernel(members).items()}
        beside = [one for one in copies if shape(_without_axis(one.problem)) == shape(family)]
        auto = {
            one.problem.axis: (one.kernel, point) for one in members if one.auto and (point := _point(one))
        }
        found.append(PlotPanel(op, family, lines, _best_points(beside), auto))
    ops = list(dict.fromkeys(panel.op for panel in found))
    return sorted(found, key=lambda panel: (ops.index(panel.op), panel.family.batch_size))


def _without_axis(problem: Problem) -> Problem:
    changed: Problem = replace(problem, **cast(Any, {problem.AXIS: 1}))
    return changed


def _best_points(results: Sequence[Result]) -> dict[int, PlotPoint]:
    sizes = grouped(results, lambda one: one.problem.axis)
    winners = {n: best(sizes[n]) for n in sorted(sizes)}
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


def _height(panel: PlotPanel) -> float:
    """Inches that the axes need for their labels."""
    many = len(panel.lines) + bool(panel.copy)
    if len(panel.lengths) > 1:
        return max(_LINES_HIGH, many * _LABEL_HIGH)
    return many * _ROW_HIGH


def _room(panel: PlotPanel, looks: Looks) -> tuple[float, float]:
    """Inches that the labels take up at the left and at the right of the axes."""
    entries = _entries(panel, looks)
    if len(panel.lengths) > 1:
        return 0.0, widest(_end(one, panel) for one in entries)
    numbers = [widest(told(one.last) for one in entries) for told in (_rate, _share)]
    return widest(one.name for one in entries), sum(numbers)


def _draw(ax: Axes, panel: PlotPanel, looks: Looks) -> list[Annotation]:
    """Draw a panel; gives the labels that `finish` has to move."""
    entries = _entries(panel, looks)
    if len(panel.lengths) == 1:
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


def _entries(panel: PlotPanel, looks: Looks) -> list[_Entry]:
    kernels = [_Entry(label(kernel), *looks[kernel], line) for kernel, line in panel.lines.items()]
    return [*kernels, *([_Entry("copy (roofline)", INK, "|", panel.copy)] if panel.copy else [])]


def _draw_lines(ax: Axes, panel: PlotPanel, entries: Sequence[_Entry]) -> None:
    mark = _MARK if len(panel.lengths) <= _MOST_APART else _SMALL_MARK
    # Where many bands lie above one another, lines have to be seen through them.
    alpha = min(0.15, 1.5 / len(entries))
    for one in entries:
        sizes, (gbps, low, high, _) = list(one.line), zip(*one.line.values(), strict=True)
        if one.line is panel.copy:
            ax.plot(sizes, gbps, marker="_" if len(sizes) == 1 else "", **ROOFLINE)
        else:
            # The edge is what is seen of a line of one point.
            ax.fill_between(sizes, low, high, color=one.colour, alpha=alpha, linewidth=1)
            ax.plot(sizes, gbps, color=one.colour, marker=one.marker, markersize=mark, linewidth=1.6)
    rings = [point.gbps for _, point in panel.auto.values()]
    ax.plot(list(panel.auto), rings, markersize=mark + _RING_ADDS, **_RING)
    scale, at = places(panel.lengths)
    ax.set_xscale(scale)
    shown = ticks(at)
    ax.set_xticks(shown, list(map(str, shown)))
    ax.set_xticks(panel.lengths, [""] * len(panel.lengths), minor=True)
    ax.set_xlabel(f"{panel.family.AXIS} (N)")
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
    """The label of a line: the share is that of its last size, which is named where others go further."""
    size = max(one.line)
    words = [_share(one.last), "" if size == panel.lengths[-1] else f"at {size}"]
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
        ax.plot([point.gbps], [at], markersize=_MARK + _RING_ADDS, **_RING)
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
