"""Throughput as a picture: GB/s over the number of columns, a line per kernel, the copy as the roofline."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from webnorm import system
from webnorm.errors import WebnormError, one_line, shortened
from webnorm.files import replacing
from webnorm.lab.ranking import best, by_kernel, shape
from webnorm.lab.results import MOST_GBPS, Report, Result, usable
from webnorm.norms.problem import Problem

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by the colour-blind (https://jfly.uni-koeln.de/color/), without black,
# which is the roofline's, and without yellow, which is too faint for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_ROOFLINE = "#333333"
# Panels side by side before a new line of them begins.
_PANELS_ACROSS = 3
# Labels that fit on one axis; a longer sweep keeps matplotlib's own ticks.
_MOST_TICKS = 10
# Axes cannot tell less from 0.
_LEAST_GBPS = 1e-9
# Characters of a label: a longer one would leave no room for the picture.
_MOST_LABEL = 60


class _Point(NamedTuple):
    """GB/s at the median, and at p80 and p20 of the time, where those are known."""

    gbps: float
    low: float
    high: float


@dataclass(frozen=True)
class _Panel:
    """Lines of one op: kernel -> cols -> point. `family` is the problem but for its cols."""

    op: str
    family: Problem
    lines: Mapping[str, Mapping[int, _Point]]
    copy: Mapping[int, _Point]

    @property
    def cols(self) -> list[int]:
        return sorted({cols for line in self.lines.values() for cols in line} | set(self.copy))


def file_format(path: Path) -> str:
    """The format that the name of a picture asks for, "svg" or "png".

    Raises WebnormError for any other, and without matplotlib.
    """
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise WebnormError(f"cannot draw {path}: its suffix is {suffix!r}; expected .svg or .png")
    if find_spec("matplotlib") is None:
        raise WebnormError(f"a plot needs matplotlib: {shlex.join(system.pip_install('matplotlib'))}")
    return suffix[1:]


def plot(report: Report, path: Path) -> None:
    """Draw the report's right and timed results into an .svg or .png file.

    GB/s (the op's minimum bytes over the median time) over cols, the best variant of each kernel at each
    size, a band from p20 to p80, a panel for each op and number of rows. A single size becomes bars.
    Raises WebnormError for another suffix, without matplotlib, and where nothing was timed.
    """
    form = file_format(path)
    import matplotlib

    panels = _panels(report.results)
    if not panels:
        raise WebnormError(f"cannot draw {path}: no result in the report is both right and timed")
    # Text stays text (searchable, small), and equal reports give equal files.
    # A name is no formula, whatever its dollar signs enclose.
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "webnorm", "text.parse_math": False}),
        warnings.catch_warnings(),
    ):
        # Of glyphs that its font lacks, in names of any script.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = _figure(panels)
        figure.suptitle(_title(report, panels), fontsize=11)
        with replacing(path) as beside:
            # An SVG has the date of its making unless told not to.
            metadata = {"Date": None} if form == "svg" else {}
            figure.savefig(beside, format=form, dpi=150, metadata=metadata, facecolor="white")


def _figure(panels: Sequence[_Panel]) -> Figure:
    """The panels in a grid, above a legend of the kernels that are lines."""
    from matplotlib.figure import Figure

    styles = _styles(panels)
    # Four are a square rather than three and one.
    across = 2 if len(panels) == 4 else min(len(panels), _PANELS_ACROSS)
    down = math.ceil(len(panels) / across)
    legend_lines = math.ceil((len(styles) + 1) / (3 * across))
    figure = Figure(
        figsize=(max(7.0, 4.6 * across), 3.8 * down + 0.7 + 0.25 * legend_lines), layout="constrained"
    )
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    handles: dict[str, Artist] = {}
    for panel, ax in zip(panels, axes, strict=False):
        if len(panel.cols) > 1:
            handles |= _draw_lines(ax, panel, styles)
        else:
            _draw_bars(ax, panel)
        ax.set_title(_panel_title(panel), fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    # Bars have their names beside them.
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=min(len(handles), 3 * across),
            frameon=False,
            fontsize=9,
        )
    return figure


def _panels(results: Sequence[Result]) -> list[_Panel]:
    """In order of appearance, rows ascending within an op; copies alone make panels of their own."""
    drawable = [result for result in results if result.timed and _point(result)]
    others = [result for result in drawable if not result.roofline]
    families: dict[tuple[str, Problem], list[Result]] = {}
    for result in others or drawable:
        families.setdefault((result.op, _of_one_column(result.problem)), []).append(result)
    panels = []
    for (op, family), members in families.items():
        lines = {kernel: _best_points(own) for (_, kernel), own in by_kernel(members).items()}
        beside = [
            result
            for result in drawable
            if others and result.roofline and shape(_of_one_column(result.problem)) == shape(family)
        ]
        panels.append(_Panel(op, family, lines, _best_points(beside)))
    ops = list(dict.fromkeys(panel.op for panel in panels))
    return sorted(panels, key=lambda panel: (ops.index(panel.op), panel.family.rows))


def _of_one_column(problem: Problem) -> Problem:
    return replace(problem, cols=1)


def _best_points(results: Sequence[Result]) -> dict[int, _Point]:
    cols = sorted({result.problem.cols for result in results})
    winners = {n: best([result for result in results if result.problem.cols == n]) for n in cols}
    return {n: point for n, winner in winners.items() if winner and (point := _point(winner))}


def _point(result: Result) -> _Point | None:
    gbps, median = result.gbps, result.median_ns
    if gbps is None or median is None or not _LEAST_GBPS < gbps < MOST_GBPS:
        return None

    def at(time: float | None) -> float:
        found = gbps * median / time if time is not None and usable((time,)) else gbps
        return found if _LEAST_GBPS < found < MOST_GBPS else gbps

    return _Point(gbps, at(result.p80_ns), at(result.p20_ns))


def _styles(panels: Sequence[_Panel]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each kernel, the same in every panel; 6 and 7 of them make 42 pairs."""
    kernels = dict.fromkeys(kernel for panel in panels for kernel in panel.lines)
    return {
        kernel: (COLOURS[at % len(COLOURS)], MARKERS[at % len(MARKERS)]) for at, kernel in enumerate(kernels)
    }


def _draw_lines(ax: Axes, panel: _Panel, styles: Mapping[str, tuple[str, str]]) -> dict[str, Artist]:
    """What the legend has to explain: matplotlib's own search leaves out names that begin with `_`."""
    drawn: dict[str, Artist] = {}
    for kernel, line in panel.lines.items():
        colour, marker = styles[kernel]
        cols, (gbps, low, high) = list(line), zip(*line.values(), strict=True)
        ax.fill_between(cols, low, high, color=colour, alpha=0.15, linewidth=0)
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.6}
        (drawn[_label(kernel)],) = ax.plot(cols, gbps, **look)
    if panel.copy:
        (drawn["copy (roofline)"],) = ax.plot(
            list(panel.copy),
            [p.gbps for p in panel.copy.values()],
            color=_ROOFLINE,
            linestyle="--",
            marker="_" if len(panel.copy) == 1 else "",
            linewidth=1.4,
        )
    if len(panel.cols) > 3:
        ax.set_xscale("log", base=2)
    if len(panel.cols) <= _MOST_TICKS:
        crowded = len(panel.cols) > 6
        ax.set_xticks(panel.cols, list(map(str, panel.cols)), rotation=45 if crowded else 0)
        ax.set_xticks([], minor=True)
    ax.set_xlabel("cols (N)")
    ax.set_ylabel("GB/s")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", alpha=0.3)
    return drawn


def _draw_bars(ax: Axes, panel: _Panel) -> None:
    bars = {_label(kernel): point for kernel, line in panel.lines.items() for point in line.values()}
    names = sorted(bars, key=lambda kernel: bars[kernel].gbps)
    points = [bars[name] for name in names]
    spread = [[max(0.0, p.gbps - p.low) for p in points], [max(0.0, p.high - p.gbps) for p in points]]
    error_bars = {"ecolor": "#555555", "elinewidth": 1, "capsize": 2}
    ax.barh(names, [p.gbps for p in points], xerr=spread, color=COLOURS[0], error_kw=error_bars, height=0.7)
    beside: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9}
    # Text on white, so that a number that meets the roofline can still be read.
    patch = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    for at, point in enumerate(points):
        right = max(point.gbps, point.high)
        ax.annotate(f"{point.gbps:.4g}", (right, at), (5, 0), va="center", bbox=patch, **beside)
    for point in panel.copy.values():
        ax.axvline(point.gbps, color=_ROOFLINE, linestyle="--", linewidth=1.4, zorder=0.9)
        ax.annotate(
            f"copy {point.gbps:.4g}",
            (point.gbps, 0.02),
            (4, 0),
            xycoords=("data", "axes fraction"),
            rotation=90,
            color=_ROOFLINE,
            **beside,
        )
    ends = [max(p.gbps, p.high) for p in (*points, *panel.copy.values())]
    # Room for the numbers at the right of the longest bar.
    ax.set_xlim(0, 1.15 * max(ends))
    ax.set_xlabel("GB/s")
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)


def _panel_title(panel: _Panel) -> str:
    one = f", cols {panel.cols[0]}" if len(panel.cols) == 1 else ""
    # What the problem says of itself after its sizes and dtype, such as "no bias".
    _, _, extras = str(panel.family).partition(panel.family.dtype)
    drawn = "" if panel.family.distribution == "normal" else f", {panel.family.distribution}"
    return f"{_label(panel.op)}, rows {panel.family.rows}{one}{extras}{drawn}"


def _title(report: Report, panels: Sequence[_Panel]) -> str:
    dtypes = ", ".join(dict.fromkeys(panel.family.dtype for panel in panels))
    return f"{_label(str(report.device.get('adapter', 'unknown device')))}, {dtypes}"


def _label(name: str) -> str:
    return shortened(one_line(name), _MOST_LABEL)
