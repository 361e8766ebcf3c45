"""Throughput plots: GB/s over the sizes of the axis, one panel per op, titled with the device's name."""

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

# Panels per row.
_PANELS_ACROSS = 2
# Inches: the axes' width in a single panel and in each of several, the margins next to and above the axes,
# and the margin around all panels.
_ALONE, _OF_SEVERAL, _MARGIN, _ABOVE, _AROUND = 4.8, 3.8, 0.9, 0.9, 0.7
# The colour and the marker of each kernel.
Looks = Mapping[str, tuple[str, str]]
_RATE = "GB/s (median, p20 to p80)"
# Inches: the least height of axes with lines, and the distance between labels, and between rows.
_LINES_HIGH, _LABEL_HIGH, _ROW_HIGH = 2.8, 0.18, 0.25
# The start of labels, as a multiple of the axes' width.
_LABELS_AT = 1.05
# Points: markers, markers of lines with many points, the extra size of rings, the gap between texts.
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
# Smaller values look like 0 on the axes.
_LEAST_GBPS = 1e-9


def file_format(path: Path) -> str:
    """Return the format of a picture from its file name, "svg" or "png"; raise WebnormError for others."""
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise WebnormError(f"cannot draw {path}: its suffix is {suffix!r}; it must be .svg or .png")
    return suffix[1:]


def check_plot(path: Path) -> None:
    """Raise WebnormError if no picture of this name can be drawn on this machine."""
    drawing.check_drawing(file_format(path))


def plot(report: Report, path: Path) -> None:
    """Draw the report's right and timed results into an .svg or .png file without a background.

    The plot shows GB/s (the op's minimum bytes over the median time) over the sizes of the axis, with one
    panel per op and batch. A line shows the best variant of a kernel at each size, with a band from p20 to
    p80. A single size gives one row per kernel. Rings mark the choices of `auto`; the legend says if they
    were not timed. Raises WebnormError for another suffix, without matplotlib, and if nothing was timed.
    """
    form = file_format(path)
    if not panels(report.results):
        raise WebnormError(f"cannot draw {path}: no result in the report is both right and timed")
    with replacing(path) as new:
        new.write_bytes(_drawn(report, form))


def svg(report: Report) -> str:
    """Return the plot as an SVG element; "" without matplotlib, and if nothing is right and timed."""
    if not (drawing.is_installed() and panels(report.results)):
        return ""
    text = _drawn(report, "svg").decode()
    return text[text.index("<svg") :]


def _drawn(report: Report, form: str) -> bytes:
    adapter = str(report.device.get("adapter", "unknown device"))
    return drawing.draw_in_process(form, _figure, panels(report.results), adapter)


def _figure(found: Sequence[PlotPanel], adapter: str) -> Figure:
    """Return the figure: a grid of panels with equal heights in each row."""
    from matplotlib.figure import Figure

    looks = styles(kernel for panel in found for kernel in panel.lines)
    across = min(len(found), _PANELS_ACROSS)
    wide = _ALONE if across == 1 else _OF_SEVERAL
    lines = [found[at : at + across] for at in range(0, len(found), across)]
    heights = [max(map(_height, line)) for line in lines]
    # All axes of a column have the same left and right end.
    left, right = map(max, zip(*(_room(panel, looks) for panel in found), strict=True))
    size = across * (left + wide + right + _MARGIN), sum(heights) + len(lines) * _ABOVE + _AROUND
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
    """Return the legend entry of auto's choices, with their mark if any has a ring."""
    from matplotlib.lines import Line2D

    rings, every = sum(len(panel.auto) for panel in found), sum(len(panel.sizes) for panel in found)
    note = ("" if rings == every else " (where timed)") if rings else " (not timed)"
    mark = _MARK + _RING_ADDS if rings else 0.0
    return Line2D([], [], label=f"auto's choice{note}", markersize=mark, **_RING)


def _panel_title(panel: PlotPanel, found: Sequence[PlotPanel]) -> str:
    # The end of the problem's text, after its sizes and dtype, such as "no bias".
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


# --- Panels: their data, and drawing them.


class PlotPoint(NamedTuple):
    """GB/s at the median and, if known, at p80 and p20 of the time; the percentage of the copy."""

    gbps: float
    low: float
    high: float
    percent_of_copy: float | None


@dataclass(frozen=True)
class PlotPanel:
    """The lines of one op: kernel -> size of the axis -> point.

    `family` is the problem without that size. `auto` contains the kernel that auto chooses for each size, and
    the point of that variant.
    """

    op: str
    family: Problem
    lines: Mapping[str, Mapping[int, PlotPoint]]
    copy: Mapping[int, PlotPoint]
    auto: Mapping[int, tuple[str, PlotPoint]]

    @property
    def sizes(self) -> set[int]:
        """The sizes of the axis for which kernels have points."""
        return {size for line in self.lines.values() for size in line}

    @property
    def lengths(self) -> list[int]:
        """All sizes of the axis, ascending."""
        return sorted(self.sizes | set(self.copy))


def panels(results: Sequence[Result]) -> list[PlotPanel]:
    """Return the panels: ops in order of appearance, batches ascending; copies only if there are no ops."""
    drawable = [result for result in results if result.timed and _point(result)]
    others = [result for result in drawable if not result.roofline]
    copies = [result for result in drawable if others and result.roofline]
    families = grouped(others or drawable, lambda one: (one.op, _without_axis(one.problem)))
    found = []
    for (op, family), members in families.items():
        lines = {kernel: _best_points(own) for (_, kernel), own in by_kernel(members).items()}
        own_copies = [one for one in copies if shape(_without_axis(one.problem)) == shape(family)]
        auto = {
            one.problem.axis: (one.kernel, point) for one in members if one.auto and (point := _point(one))
        }
        found.append(PlotPanel(op, family, lines, _best_points(own_copies), auto))
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
    """A line with a label: a kernel or the copy."""

    name: str
    colour: str
    marker: str
    line: Mapping[int, PlotPoint]

    @property
    def last(self) -> PlotPoint:
        """The point at the line's right end; for a single size the only point."""
        return list(self.line.values())[-1]


def _height(panel: PlotPanel) -> float:
    """Return the height of the axes that the labels need, in inches."""
    many = len(panel.lines) + bool(panel.copy)
    if len(panel.lengths) > 1:
        return max(_LINES_HIGH, many * _LABEL_HIGH)
    return many * _ROW_HIGH


def _room(panel: PlotPanel, looks: Looks) -> tuple[float, float]:
    """Return the width of the labels at the left and at the right of the axes, in inches."""
    entries = _entries(panel, looks)
    if len(panel.lengths) > 1:
        return 0.0, widest(_end(one, panel) for one in entries)
    numbers = [widest(text_of(one.last) for one in entries) for text_of in (_rate, _share)]
    return widest(one.name for one in entries), sum(numbers)


def _draw(ax: Axes, panel: PlotPanel, looks: Looks) -> list[Annotation]:
    """Draw a panel and return the labels that `finish` has to move."""
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
    # Moving labels must not change the layout.
    figure.set_layout_engine("none")
    for ax, labels in zip(axes, drawn, strict=False):
        _move_apart(ax, labels)


def _move_apart(ax: Axes, labels: Sequence[Annotation]) -> None:
    """Move labels up and down until none covers another; call it after drawing the figure."""
    from matplotlib.text import Text

    wanted = [float(ax.transData.transform(one.xy)[1]) for one in labels]
    # An Annotation's own extent includes its line.
    gap = 1.1 * max((Text.get_window_extent(one).height for one in labels), default=0.0)
    for one, place in zip(labels, spread(wanted, gap, ax.bbox.y0, ax.bbox.y1), strict=True):
        one.xyann = (_LABELS_AT, ax.transData.inverted().transform((ax.bbox.x0, place))[1])


def _entries(panel: PlotPanel, looks: Looks) -> list[_Entry]:
    kernels = [_Entry(label(kernel), *looks[kernel], line) for kernel, line in panel.lines.items()]
    return [*kernels, *([_Entry("copy (roofline)", INK, "|", panel.copy)] if panel.copy else [])]


def _draw_lines(ax: Axes, panel: PlotPanel, entries: Sequence[_Entry]) -> None:
    mark = _MARK if len(panel.lengths) <= _MOST_APART else _SMALL_MARK
    # Lines have to stay visible through many overlapping bands.
    alpha = min(0.15, 1.5 / len(entries))
    for one in entries:
        sizes, (gbps, low, high, _) = list(one.line), zip(*one.line.values(), strict=True)
        if one.line is panel.copy:
            ax.plot(sizes, gbps, marker="_" if len(sizes) == 1 else "", **ROOFLINE)
        else:
            # The edge is the only visible part of a band with one point.
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


def label_line(ax: Axes, end: tuple[float, float], text: str, colour: str) -> Annotation:
    """Add a label next to the axes, with a dotted line to the end of its line."""
    return ax.annotate(
        text,
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
    """Return the label of a line, with the percentage at its last size; the size too if others go further."""
    size = max(one.line)
    words = [_share(one.last), "" if size == panel.lengths[-1] else f"at {size}"]
    return f"{one.name}  {' '.join(filter(None, words))}".rstrip()


def _draw_rows(ax: Axes, panel: PlotPanel, entries: Sequence[_Entry]) -> None:
    """Draw one row per entry, the first at the bottom."""
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
    """Write names at the left and columns of numbers at the right."""
    ax.set_yticks(range(len(entries)), [one.name for one in entries])
    ax.tick_params(axis="y", length=0)
    for text, one in zip(ax.get_yticklabels(), entries, strict=True):
        text.set_color(one.colour)
    right = 0.0
    for text_of in (_rate, _share):
        right += _GAP + 72 * widest(text_of(one.last) for one in entries)
        for at, one in enumerate(entries):
            ax.annotate(
                text_of(one.last),
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
    """Return the percentage of the copy, "" without a copy."""
    return "" if point.percent_of_copy is None else f"{percent_text(point.percent_of_copy)} %"


def widest(texts: Iterable[str]) -> float:
    """Return the width of the widest text, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties()
    sizes = [text_to_path.get_text_width_height_descent(text, font, ismath=False) for text in texts]
    return max(wide for wide, _, _ in sizes) / 72
