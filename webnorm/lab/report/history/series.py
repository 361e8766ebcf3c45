"""Series of results: the results of one variant and problem on one platform, run by run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from webnorm.errors import WebnormError, shown
from webnorm.files.atomic import replacing
from webnorm.kernels.headers.library import own_names
from webnorm.lab.plot import drawing
from webnorm.lab.plot.style import INK, label, styles, wrapped
from webnorm.lab.plot.throughput import ROOFLINE, file_format, finish, label_line, widest
from webnorm.lab.report.history.store import COLUMNS, PLATFORM, TIMED, open_for_reading
from webnorm.lab.results.ranking import grouped
from webnorm.lab.results.result import MOST_GBPS, Cell
from webnorm.lab.results.result_files import json_lines
from webnorm.lab.results.tables import csv_text
from webnorm.op.registry import OPS
from webnorm.op.selection import matches, select_names, split_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

SCHEMA = 1
# Columns of the store that agree within a series, and columns of the timing method, which failures lack.
_VARIANT = ("op", "problem", "eps", "scale", "distribution", "case", "kernel", "constants")
_METHOD = ("timing_method", "cache", "calls")
TITLE = (*PLATFORM, "op", "problem", "eps", "scale", "distribution", "case")
# A row of the view `history`, with the column `timed`.
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class SeriesQuery:
    """A selection of stored results: ops and kernels by lists and patterns, adapters by a part of their name.

    None, or an empty sequence, selects all.
    """

    op: str | None = None
    kernel: Sequence[str] = ()
    adapter: str | None = None

    def where(self, connection: Connection) -> tuple[str, list[str]]:
        """Return an SQL condition on rows of `history`, and the values of its question marks.

        Raises WebnormError for a name that no stored result has.
        """
        wanted = dict[str, Sequence[str]]()
        asked = {"op": self.op, "kernel": ",".join(self.kernel) or None}
        for column, text in asked.items():
            if text is not None:
                rows = connection.execute(f"SELECT DISTINCT {column} FROM results ORDER BY 1")
                wanted[column] = _stored_names(text, [name for (name,) in rows], column)
        if self.adapter is not None:
            adapters = [name for (name,) in connection.execute("SELECT DISTINCT adapter FROM reports")]
            wanted["adapter"] = [name for name in adapters if self.adapter.casefold() in name.casefold()]
            if not wanted["adapter"]:
                there = ", ".join(map(shown, sorted(adapters))) or "none"
                raise WebnormError(f"no adapter name contains {shown(self.adapter)}; stored are: {there}")
        parts = (f"{column} IN ({', '.join('?' * len(names))})" for column, names in wanted.items())
        where, values = " AND ".join(["1", *parts]), [name for names in wanted.values() for name in names]
        if values and connection.execute(f"SELECT 1 FROM history WHERE {where}", values).fetchone() is None:
            raise WebnormError("no stored result matches all selections; remove one of them")
        return where, values


def _stored_names(asked: str, stored: Sequence[str], column: str) -> tuple[str, ...]:
    """Return the stored names that a list selects.

    Raises WebnormError for a name that no stored result has. The message differs for names that do not exist.
    """
    known = OPS if column == "op" else own_names()
    there = f"the store contains {', '.join(stored)}" if stored else "the store contains no results"
    for part in split_names(asked, column):
        if any(matches(part, name) for name in known) and not any(matches(part, name) for name in stored):
            raise WebnormError(f"no result is stored for {column} {shown(part)}: {there}")
    return select_names(asked, stored, column)


@dataclass(frozen=True)
class History:
    """The selected series, each with its last entries, the newest last.

    `reports` counts the reports in the store, `untimed` the reports without times, and `copies` the series of
    copies that were left out.
    """

    series: tuple[tuple[Entry, ...], ...]
    reports: int
    untimed: int
    copies: int = 0

    def without_copies(self) -> History:
        """Return the history without series of copies, if there are others; `copies` counts them."""
        others = tuple(one for one in self.series if one[0]["op"] != "copy")
        if not others:
            return self
        return replace(self, series=others, copies=len(self.series) - len(others))

    def entries(self) -> list[Entry]:
        """Return the entries of all series, series by series."""
        return [entry for one in self.series for entry in one]


def history(store: Path, asked: SeriesQuery, last: int) -> History:
    """Return the `last` runs of each variant that was timed, including runs where it was wrong.

    Raises WebnormError without a store, and for unknown names.
    """
    with open_for_reading(store) as connection:
        where, values = asked.where(connection)
        rows = [
            dict(row)
            for row in connection.execute(f"SELECT *, {TIMED} AS timed FROM history WHERE {where}", values)
        ]
        (reports,) = connection.execute("SELECT COUNT(*) FROM reports").fetchone()
        (some,) = connection.execute(f"SELECT COUNT(DISTINCT report) FROM results WHERE {TIMED}").fetchone()
    found = ([{**row, "runs": len(one)} for row in one[-last:]] for one in _series(rows))
    return History(tuple(sorted(map(tuple, found), key=_place)), reports, reports - some)


def _series(rows: Sequence[Entry]) -> list[list[Entry]]:
    """Return the rows by series; rows without a time go to all series of their variant that have times."""
    methods: dict[tuple[Cell, ...], dict[tuple[Cell, ...], None]] = {}
    for row in rows:
        if row["timed"]:
            methods.setdefault(_variant_of(row), {})[tuple(row[name] for name in _METHOD)] = None
    found: dict[tuple[Cell, ...], list[Entry]] = {}
    for row in rows:
        own = tuple(row[name] for name in _METHOD)
        for method in methods.get(_variant_of(row), ()):
            if method == own or not row["timed"]:
                found.setdefault((*_variant_of(row), *method), []).append(row)
    return [*found.values()]


def _variant_of(row: Entry) -> tuple[Cell, ...]:
    return tuple(row[name] for name in (*PLATFORM, *_VARIANT))


def _place(series: Sequence[Entry]) -> tuple[str, ...]:
    """Return the sort key of a series: by platform and problem, copies last."""
    first = series[0]
    title = tuple(str(first[name]) for name in (*PLATFORM, "op"))
    sizes = tuple(f"{first[name] or '':>20}" for name in ("dtype", "cols", "rows"))
    return (*title[:-1], str(first["op"] == "copy"), title[-1], *sizes, *(str(first[n]) for n in _VARIANT))


def to_json(found: History) -> str:
    """Return the entries as JSON, one line each; unknown values have no key."""
    entries = ({name: one[name] for name in COLUMNS} for one in found.entries())
    return json_lines({"schema": SCHEMA, "reports": found.reports}, "entries", entries) + "\n"


def to_csv(found: History) -> str:
    """Return the entries as CSV with a header line."""
    return csv_text(COLUMNS, ({name: one[name] for name in COLUMNS} for one in found.entries()))


# --- Drawing: GB/s over runs, one panel per problem of a device.

# The driver may change within a panel; there its lines end, and others begin.
_DRIVES = ("driver", "wgpu")
_DEVICE = tuple(name for name in TITLE if name not in _DRIVES)
_COPY = "copy (roofline)"
# Columns in which a copy agrees with the results it belongs to. The sizes are named as in the store.
_OF_A_COPY = ("adapter", "vendor", "backend", "type", "rows", "cols", "dtype")
# A picture with more panels is not readable.
_MOST_PANELS = 24
_PANELS_ACROSS = 2
# The size of the axes and of the margins around them, in inches.
_WIDE, _HIGH, _MARGIN, _ABOVE = 4.4, 2.6, 1.1, 1.2
# The number of dates that fit below an axis.
_MOST_DATES = 6


@dataclass(frozen=True)
class HistoryPanel:
    """A panel with lines over the runs of a device.

    `lines` maps a line's label to its pieces, one per platform, which map a run's number to GB/s. `dates`
    contains one date per run. `changes` contains the positions between two runs where the driver or wgpu
    changed.
    """

    title: str
    dates: tuple[str, ...]
    lines: Mapping[str, Sequence[Mapping[int, float]]]
    changes: Mapping[float, str]


def draw_history(found: History, path: Path) -> None:
    """Draw GB/s over runs into an .svg or .png file without a background.

    Raises WebnormError if there is nothing to draw, or too much.
    """
    shown = history_panels(found)
    if not shown:
        raise WebnormError(f"cannot draw {path}: no selected result has GB/s")
    if len(shown) > _MOST_PANELS:
        raise WebnormError(
            f"cannot draw {path}: there are {len(shown)} problems and at most {_MOST_PANELS} fit; select "
            "some with --op, --kernel or --adapter"
        )
    with replacing(path) as new:
        new.write_bytes(drawing.draw_in_process(file_format(path), _figure, shown))


def history_panels(found: History) -> list[HistoryPanel]:
    """Return one panel per problem of a device; its lines include the copies of the same shape."""
    entries = [one for one in found.entries() if one["timed"] and 0 < (one["gbps"] or 0.0) < MOST_GBPS]
    others = [one for one in entries if one["op"] != "copy"]
    copies = [one for one in entries if others and one["op"] == "copy"]
    groups = grouped(others or entries, lambda one: tuple(one[name] for name in _DEVICE))
    return [
        _panel(own, [one for one in copies if all(one[name] == own[0][name] for name in _OF_A_COPY)])
        for own in groups.values()
    ]


def _panel(entries: Sequence[Entry], copies: Sequence[Entry]) -> HistoryPanel:
    first = entries[0]
    # The view's order: by `recorded`, then by the order in which reports were added.
    runs = sorted({(one["recorded"] or "", one["report"]): one for one in entries}.items())
    places = {number: place for place, ((_, number), _) in enumerate(runs)}
    kept = Counter(kernel for kernel, _ in {(one["kernel"], one["constants"]) for one in entries})
    lines: dict[str, dict[object, dict[int, float]]] = {}
    for one in (*entries, *copies):
        if one["report"] in places:
            is_copy = one["op"] == "copy" and first["op"] != "copy"
            # Constants distinguish several lines of one kernel.
            constants = (one["constants"] or "").replace(";", " ") if kept[one["kernel"]] > 1 else ""
            name = _COPY if is_copy else label(f"{one['kernel']} {constants}".rstrip())
            piece = lines.setdefault(name, {}).setdefault(tuple(one[key] for key in PLATFORM), {})
            place = places[one["report"]]
            # The best of several copies is the roofline.
            piece[place] = max(piece.get(place, 0.0), one["gbps"])
    drives = [tuple(f"{name} {one[name]}" for name in _DRIVES) for _, one in runs]
    # If machines take turns, each is named only once.
    changes = {
        at - 0.5: ", ".join(sorted({*drives[at]} - {*drives[at - 1]}))
        for at in range(1, len(runs))
        if drives[at] not in drives[:at]
    }
    ordered = {name: [*pieces.values()] for name, pieces in lines.items()}
    title = f"{label(first['adapter'])}, {first['op']} {first['problem']}"
    case = f", {first['case']}" if first["case"] else ""
    return HistoryPanel(f"{title}{case}", tuple(key[0][:10] for key, _ in runs), ordered, changes)


def _figure(shown: Sequence[HistoryPanel]) -> Figure:
    from matplotlib.figure import Figure

    looks = styles(name for panel in shown for name in panel.lines if name != _COPY)
    across = min(len(shown), _PANELS_ACROSS)
    rows = -(-len(shown) // across)
    right = widest(name for panel in shown for name in panel.lines)
    size = across * (_WIDE + right + _MARGIN), rows * (_HIGH + _ABOVE)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes = list(figure.subplots(rows, across, squeeze=False).flat)
    drawn = [_draw(ax, panel, looks) for ax, panel in zip(axes, shown, strict=False)]
    finish(figure, axes, drawn)
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
    for at, change in panel.changes.items():
        ax.axvline(at, color=INK, linewidth=0.8, linestyle=":")
        ax.annotate(
            label(change),
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
    ax.set_xlabel("run (date recorded)")
    ax.set_ylabel("GB/s (median)")
    ax.grid(axis="y")
    ax.set_title(wrapped(panel.title, _WIDE))
    return labels
