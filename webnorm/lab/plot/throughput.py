"""Throughput as a picture: GB/s over the number of columns, the device's name above, a panel for each op."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from webnorm.errors import WebnormError
from webnorm.files.atomic import replacing
from webnorm.lab.plot import drawing
from webnorm.lab.plot.panels import PlotPanel, draw, finish, height, panels, ring_alone, room
from webnorm.lab.plot.style import label, styles, wrapped
from webnorm.lab.results.result import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Panels side by side before a new line of them begins.
_PANELS_ACROSS = 2
# Inches: the axes' width in one panel and in each of several, what stands beside and above the axes, and
# above and below all panels.
_ALONE, _OF_SEVERAL, _BESIDE, _ABOVE, _AROUND = 4.8, 3.8, 0.9, 0.9, 0.7


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

    GB/s (the op's minimum bytes over the median time) over cols, the best variant of each kernel at each
    size, a band from p20 to p80, a panel for each op and number of rows. A single size becomes a row for
    each kernel. Rings mark what auto chooses; where that was not timed the legend says so.
    Raises WebnormError for another suffix, without matplotlib, and where nothing was timed.
    """
    form = file_format(path)
    if not panels(report.results):
        raise WebnormError(f"cannot draw {path}: no result in the report is both right and timed")
    with replacing(path) as beside:
        beside.write_bytes(_drawn(report, form))


def svg(report: Report) -> str:
    """The same as an SVG element, for a page."""
    text = _drawn(report, "svg").decode()
    return text[text.index("<svg") :]


def can_draw(report: Report) -> bool:
    """Whether matplotlib is there, and anything in a report is both right and timed."""
    return drawing.is_installed() and bool(panels(report.results))


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
    heights = [max(map(height, line)) for line in lines]
    # Axes of one column begin and end together.
    left, right = map(max, zip(*(room(panel, looks) for panel in found), strict=True))
    size = across * (left + wide + right + _BESIDE), sum(heights) + len(lines) * _ABOVE + _AROUND
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes = list(figure.subplots(len(lines), across, squeeze=False, height_ratios=heights).flat)
    drawn = [draw(ax, panel, looks) for ax, panel in zip(axes, found, strict=False)]
    for panel, ax in zip(found, axes, strict=False):
        ax.set_title(wrapped(_panel_title(panel, found), wide))
    dtypes = ", ".join(dict.fromkeys(panel.family.dtype for panel in found))
    figure.suptitle(wrapped(f"{label(adapter)}, {dtypes}", size[0]), fontsize=11)
    if any(panel.op != "copy" for panel in found):
        ring = ring_alone(*_said_of_auto(found))
        figure.legend(handles=[ring], loc="outside lower right", frameon=False, handletextpad=0.3)
    finish(figure, axes, drawn)
    return figure


def _said_of_auto(found: Sequence[PlotPanel]) -> tuple[str, bool]:
    """What the legend says of auto's choices, and whether any has a ring."""
    rings = sum(len(panel.auto) for panel in found)
    if not rings:
        return "what auto chooses was not timed", False
    every = rings == sum(len(panel.sizes) for panel in found)
    return "what auto chooses" + ("" if every else ", where it was timed"), True


def _panel_title(panel: PlotPanel, found: Sequence[PlotPanel]) -> str:
    # What the problem says of itself after its sizes and dtype, such as "no bias".
    _, _, extras = str(panel.family).partition(panel.family.dtype)
    several = len({one.family.dtype for one in found}) > 1
    parts = (
        f"{label(panel.op)}, {panel.family.BATCH} {panel.family.batch}",
        f", {panel.family.AXIS} {panel.cols[0]}" if len(panel.cols) == 1 else "",
        f", {panel.family.dtype}" if several else "",
        extras,
        "" if panel.family.distribution == "normal" else f", {panel.family.distribution}",
    )
    return "".join(parts)
