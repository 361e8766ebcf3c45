"""Figures over runs as a picture: GB/s from run to run, a panel for each problem of a device."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webnorm.errors import WebnormError
from webnorm.files.atomic import replacing
from webnorm.lab.plot import drawing
from webnorm.lab.plot.axes import ROOFLINE, label_line, move_apart, widest
from webnorm.lab.plot.style import INK, label, styles
from webnorm.lab.plot.throughput import file_format
from webnorm.lab.report.history.series import TITLE, Entry, History
from webnorm.lab.report.history.store import PLATFORM
from webnorm.lab.results.result import MOST_GBPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

# What drives a device may change within a panel: there its lines end, and others begin.
_DRIVES = ("driver", "wgpu")
_DEVICE = tuple(name for name in TITLE if name not in _DRIVES)
_COPY = "copy (roofline)"
# More than anybody looks at in one picture.
_MOST_PANELS = 24
_PANELS_ACROSS = 2
# Inches of axes, and of what stands around them; characters of a title in an inch.
_WIDE, _HIGH, _BESIDE, _ABOVE, _IN_AN_INCH = 4.4, 2.6, 1.1, 1.2, 14
# As many dates as stand beside one another below an axis.
_MOST_DATES = 6


@dataclass(frozen=True)
class HistoryPanel:
    """Lines over the runs of a device: what each is of -> its pieces, each of one platform: GB/s by run.

    `dates` has a run each, `changes` the places between two runs where a driver or wgpu is new.
    """

    title: str
    dates: tuple[str, ...]
    lines: Mapping[str, Sequence[Mapping[int, float]]]
    changes: Mapping[float, str]


def draw_history(found: History, path: Path) -> None:
    """Draw what became of GB/s into an .svg or .png file without a background.

    WebnormError where nothing can be drawn, or too much was asked for.
    """
    shown = history_panels(found)
    if not shown:
        raise WebnormError(f"cannot draw {path}: no result that is kept and asked for has GB/s")
    if len(shown) > _MOST_PANELS:
        raise WebnormError(
            f"cannot draw {path}: {len(shown)} problems are more than {_MOST_PANELS} panels; "
            "choose some by --op, --kernel or --adapter"
        )
    with replacing(path) as beside:
        beside.write_bytes(drawing.draw_in_process(file_format(path), _figure, shown))


def history_panels(found: History) -> list[HistoryPanel]:
    """A panel for each problem of a device, the copies of its shape among its lines."""
    entries = [one for one in found.entries() if one["timed"] and _drawable(one)]
    some = any(one["op"] != "copy" for one in entries)
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for one in entries:
        if one["op"] != "copy" or not some:
            groups.setdefault(tuple(one[name] for name in _DEVICE), []).append(one)
    return [_panel(own, [one for one in entries if some and _beside(one, own[0])]) for own in groups.values()]


def _drawable(one: Entry) -> bool:
    return isinstance(one["gbps"], float) and 0 < one["gbps"] < MOST_GBPS


def _beside(one: Entry, other: Entry) -> bool:
    """Whether the one is a copy of the other's shape, on its device."""
    shared = ("adapter", "vendor", "backend", "type", "rows", "cols", "dtype")
    return one["op"] == "copy" and all(one[name] == other[name] for name in shared)


def _panel(entries: Sequence[Entry], copies: Sequence[Entry]) -> HistoryPanel:
    first = entries[0]
    # By the view's order: `recorded`, then by being added.
    runs = sorted({(str(one["recorded"] or ""), _int(one["report"])): one for one in entries}.items())
    places = {number: place for place, ((_, number), _) in enumerate(runs)}
    several = {str(one["kernel"]) for one in entries if one["constants"] != _constants(entries, one)}
    lines: dict[str, dict[object, dict[int, float]]] = {}
    for one in (*entries, *copies):
        if _int(one["report"]) in places:
            is_copy = one["op"] == "copy" and first["op"] != "copy"
            name = _COPY if is_copy else _name(one, several)
            piece = lines.setdefault(name, {}).setdefault(tuple(one[key] for key in PLATFORM), {})
            place = places[_int(one["report"])]
            # Of several copies the best is the roofline.
            piece[place] = max(piece.get(place, 0.0), _float(one["gbps"]))
    drives = [tuple(f"{name} {one[name]}" for name in _DRIVES) for _, one in runs]
    # Of machines that take turns each is told once.
    changes = {
        at - 0.5: ", ".join(sorted({*drives[at]} - {*drives[at - 1]}))
        for at in range(1, len(runs))
        if drives[at] not in drives[:at]
    }
    ordered = {name: [*pieces.values()] for name, pieces in lines.items()}
    title = f"{label(str(first['adapter']))}, {first['op']} {first['problem']}"
    case = f", {first['case']}" if first["case"] else ""
    return HistoryPanel(f"{title}{case}", tuple(key[0][:10] for key, _ in runs), ordered, changes)


def _constants(entries: Sequence[Entry], like: Entry) -> object:
    """The constants of the first entry of a kernel."""
    return next(one["constants"] for one in entries if one["kernel"] == like["kernel"])


def _name(one: Entry, several: set[str]) -> str:
    """A kernel, with constants where the panel has it with others, too."""
    constants = str(one["constants"] or "").replace(";", " ") if one["kernel"] in several else ""
    return label(f"{one['kernel']} {constants}".rstrip())


def _int(cell: object) -> int:
    assert isinstance(cell, int)
    return cell


def _float(cell: object) -> float:
    assert isinstance(cell, float)
    return cell


def _figure(shown: Sequence[HistoryPanel]) -> Figure:
    from matplotlib.figure import Figure

    looks = styles(name for panel in shown for name in panel.lines if name != _COPY)
    across = min(len(shown), _PANELS_ACROSS)
    rows = -(-len(shown) // across)
    right = widest(name for panel in shown for name in panel.lines)
    size = across * (_WIDE + right + _BESIDE), rows * (_HIGH + _ABOVE)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes = list(figure.subplots(rows, across, squeeze=False).flat)
    drawn = [_draw(ax, panel, looks) for ax, panel in zip(axes, shown, strict=False)]
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    figure.draw_without_rendering()
    # Labels move within the room that they were given.
    figure.set_layout_engine("none")
    for ax, labels in zip(axes, drawn, strict=False):
        move_apart(ax, labels)
    return figure


def _draw(ax: Axes, panel: HistoryPanel, looks: Mapping[str, tuple[str, str]]) -> list[Annotation]:
    labels = []
    for name, pieces in panel.lines.items():
        colour, marker = looks.get(name, (INK, ""))
        for piece in pieces:
            style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.6}
            if name == _COPY:
                style = {**ROOFLINE, "marker": "_" if len(piece) == 1 else ""}
            ax.plot(sorted(piece), [piece[at] for at in sorted(piece)], **style)
        end = max(pieces, key=max)
        labels.append(label_line(ax, (max(end), end[max(end)]), name, colour))
    for at, said in panel.changes.items():
        ax.axvline(at, color=INK, linewidth=0.8, linestyle=":")
        ax.annotate(
            label(said),
            (at, 0),
            (3, 4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            rotation=90,
            va="bottom",
            fontsize=7,
        )
    count = len(panel.dates)
    step = -(-count // _MOST_DATES)
    places = [*range(count - 1, -1, -step)][::-1]
    ax.set_xticks(places, [panel.dates[at][5:] or "?" for at in places])
    ax.set_xlim(-0.5, count - 0.5)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("run, by the day it was recorded")
    ax.set_ylabel("GB/s (median)")
    ax.grid(axis="y")
    ax.set_title(textwrap.fill(panel.title, int(_IN_AN_INCH * _WIDE)))
    return labels
