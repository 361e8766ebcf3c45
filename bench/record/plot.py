"""Plot a record: the share of the best copy over the columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bench.contenders import COPIES, NAMES
from bench.record.sections import SECTIONS
from bench.record.tables import Summary, summaries
from webnorm.files.atomic import replacing
from webnorm.lab.plot.drawing import draw_in_process
from webnorm.lab.plot.style import COLOURS, MARKERS
from webnorm.lab.results.result import Report

_OWN = "webnorm"
_COPY = "best copy"
_ACROSS = 3
# Text stays text in the SVG, and equal records give equal files.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "webnorm"}
# A table is enough for fewer numbers of columns.
_FEWEST_COLS = 4


def plot(report: Report, path: Path, only: Collection[tuple[str, str, str]] = ()) -> None:
    """Draw an .svg with a panel for each section, op and storage type, or for some of them.

    A panel needs at least four numbers of columns. Randomly drawn columns form no curve and get no panel.

    Parameters
    ----------
    only
        The sections with their ops and storage types. Default: all.
    """
    panels = _panels(report, only)
    if not panels:
        return
    title = f"{report.device['adapter']}: % of the best copy's bytes per second, by columns"
    with replacing(path) as temporary:
        temporary.write_bytes(
            draw_in_process("svg", _figure, panels, title, settings=_SETTINGS, background="white")
        )


def _figure(panels: Sequence[tuple[str, list[Summary]]], title: str) -> Any:
    from matplotlib.figure import Figure

    # Four panels form a square rather than rows of three and one.
    across = 2 if len(panels) == 4 else min(_ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(max(7.0, 4.4 * across), 3.3 * down + 1.0), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for (heading, members), ax in zip(panels, axes, strict=False):
        _draw(ax, heading, members)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    handles = {
        label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [handles[name] for name in (_OWN, *NAMES, _COPY) if name in handles],
        [name for name in (_OWN, *NAMES, _COPY) if name in handles],
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    figure.suptitle(title)
    return figure


def _panels(report: Report, only: Collection[tuple[str, str, str]]) -> list[tuple[str, list[Summary]]]:
    found: dict[str, list[Summary]] = {}
    for section, members in summaries(report).items():
        for one in () if SECTIONS[section].drawn else members:
            if only and (section, one.op, one.problem.dtype) not in only:
                continue
            found.setdefault(f"{SECTIONS[section].title}: {one.op}, {one.problem.dtype}", []).append(one)
    return [
        (title, members)
        for title, members in found.items()
        if len({one.problem.cols for one in members}) >= _FEWEST_COLS
    ]


def _draw(ax: Any, title: str, members: Sequence[Summary]) -> None:
    """Draw lines over columns; for the same columns, the problem with more rows counts."""
    by_cols = {one.problem.cols: one for one in reversed(members)}
    cols = sorted(by_cols)
    own = [by_cols[n].percent_of_copy for n in cols]
    for at, name in enumerate(NAMES):
        line = [(n, share) for n in cols if (share := by_cols[n].share(name)) is not None]
        if line and name not in COPIES:
            colour, marker = COLOURS[at % len(COLOURS)], MARKERS[at % len(MARKERS)]
            ax.plot(*zip(*line, strict=True), color=colour, marker=marker, ms=4, lw=1.2, label=name)
    line = [(n, share) for n, share in zip(cols, own, strict=True) if share is not None]
    if line:
        ax.plot(*zip(*line, strict=True), color="black", marker="o", ms=5, lw=2.2, label=_OWN)
    ax.axhline(100, color="#777777", lw=1.0, ls="--", label=_COPY)
    ax.set_title(title, fontsize=9)
    ax.set_xscale("log", base=2)
    ax.set_xticks(cols, list(map(str, cols)), rotation=45, fontsize=8)
    ax.set_xticks([], minor=True)
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
