"""Plot the browser record: the largest error over the mean, by library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.web.plan import LIBRARIES, MEANS, SHAPES
from bench.web.tables import first_errors, mean_text
from webnorm.files.atomic import replacing
from webnorm.lab.plot.drawing import draw_in_process, is_installed
from webnorm.lab.plot.style import styles

# The positions of a mean of 0 on the logarithmic axis, and of an error that is not a number.
_ZERO, _LOST = 10.0, 1e5
_LOWEST = 1e-8


def plot(data: Mapping[str, Any], path: Path) -> bool:
    """Draw an .svg with a panel for each op in float32; False without matplotlib, or without errors."""
    panels = {op: _lines(data, op) for op in ("layer_norm", "rms_norm")}
    panels = {op: lines for op, lines in panels.items() if lines}
    if not is_installed() or not panels:
        return False
    with replacing(path) as temporary:
        temporary.write_bytes(draw_in_process("svg", _figure, panels))
    return True


def _figure(panels: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    from matplotlib.figure import Figure

    looks = styles(library.name for library in LIBRARIES)
    figure = Figure(figsize=(4.6 * len(panels) + 0.4, 4.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (op, lines) in zip(axes, panels.items(), strict=True):
        _draw(ax, op, lines, looks)
    axes[0].set_ylabel("largest error against float64")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _lines(data: Mapping[str, Any], op: str) -> list[Mapping[str, Any]]:
    return [line for line in first_errors(data, op) if line["errors"]]


def _draw(ax: Any, op: str, lines: Sequence[Mapping[str, Any]], looks: Mapping[str, tuple[str, str]]) -> None:
    rows, cols = SHAPES[0]
    for line in lines:
        name = line["library"]
        colour, marker = looks[name]
        found = {int(mean): _height(error) for mean, error in line["errors"].items()}
        at = [max(mean, _ZERO) for mean in found]
        own = name == "webnorm"
        ax.plot(
            at,
            list(found.values()),
            color=colour,
            marker=marker,
            ms=5,
            lw=2.6 if own else 1.3,
            zorder=3 if own else 2,
            label=name,
        )
        for mean, error in line["errors"].items():
            if isinstance(error, str):
                where = (max(int(mean), _ZERO), _LOST)
                ax.annotate(
                    error, where, (-6, 0), textcoords="offset points", ha="right", va="center", color=colour
                )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(_LOWEST, 3 * _LOST)
    # Plain text, because the figure is drawn without formulas.
    ax.yaxis.set_major_formatter(lambda error, _: f"{error:.0e}")
    ax.set_xticks([max(mean, _ZERO) for mean in MEANS], [mean_text(mean) for mean in MEANS])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("mean of x / its standard deviation")
    ax.set_title(f"{op}, float32, {rows} x {cols}")
    ax.grid(axis="y")


def _height(error: float | str) -> float:
    return _LOST if isinstance(error, str) else max(error, _LOWEST)
