"""What became of figures from run to run: those of one variant and problem on one platform are a series."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sqlite3 import Connection

from webnorm.errors import WebnormError, shown
from webnorm.kernels.headers.library import own_names
from webnorm.lab.report.history.store import COLUMNS, PLATFORM, TIMED, open_for_reading
from webnorm.lab.results.result import Cell
from webnorm.op.registry import OPS
from webnorm.op.selection import matches, select_names, split_names

SCHEMA = 1
# What has to agree for figures to be of one series, and how they were taken, which failures do not tell.
_VARIANT = ("op", "problem", "eps", "scale", "distribution", "case", "kernel", "constants")
_HOW = ("timing_method", "cache", "calls")
TITLE = (*PLATFORM, "op", "problem", "eps", "scale", "distribution", "case")
# A row of the view `history`, and whether it is `timed`.
Entry = Mapping[str, Cell]


@dataclass(frozen=True)
class SeriesQuery:
    """Of what is kept, what is asked for: ops and kernels by lists and patterns, adapters by a part of their
    name. None, or none, is all.
    """

    op: str | None = None
    kernel: Sequence[str] = ()
    adapter: str | None = None

    def where(self, connection: Connection) -> tuple[str, list[str]]:
        """A condition on rows of `history` and what stands for its question marks; WebnormError for a name
        that nothing which is kept has.
        """
        parts, values = ["1"], list[str]()
        asked = {"op": self.op, "kernel": ",".join(self.kernel) or None}
        for column, text in asked.items():
            if text is not None:
                rows = connection.execute(f"SELECT DISTINCT {column} FROM results ORDER BY 1")
                found = _kept(text, [name for (name,) in rows], column)
                parts.append(f"{column} IN ({', '.join('?' * len(found))})")
                values += found
        if self.adapter is not None:
            adapters = [name for (name,) in connection.execute("SELECT DISTINCT adapter FROM reports")]
            found = tuple(name for name in adapters if self.adapter.casefold() in name.casefold())
            if not found:
                there = ", ".join(map(shown, sorted(adapters))) or "none"
                raise WebnormError(f"no adapter has {shown(self.adapter)} in its name; there is: {there}")
            parts.append(f"adapter IN ({', '.join('?' * len(found))})")
            values += found
        where = " AND ".join(parts)
        if values and connection.execute(f"SELECT 1 FROM history WHERE {where}", values).fetchone() is None:
            raise WebnormError("nothing is stored that has all that was asked for: leave one of them out")
        return where, values


def _kept(asked: str, kept: Sequence[str], what: str) -> tuple[str, ...]:
    """The names of what is kept that a list asks for; WebnormError for what nothing which is kept has: one
    that does not exist at all is unknown.
    """
    known = OPS if what == "op" else own_names()
    there = f"it has {', '.join(kept)}" if kept else "it has no results"
    for part in split_names(asked, what):
        if any(matches(part, name) for name in known) and not any(matches(part, name) for name in kept):
            raise WebnormError(f"nothing is stored for {what} {shown(part)}: {there}")
    return select_names(asked, kept, what)


@dataclass(frozen=True)
class History:
    """The series that are asked for, each with its last entries, the newest last; how many reports there are
    in the store, how many of them have no times, and how many series of copies are left out.
    """

    series: tuple[tuple[Entry, ...], ...]
    reports: int
    untimed: int
    copies: int = 0

    def without_copies(self) -> History:
        """The same without those of the copy, where there are others; `copies` counts what is left out."""
        others = tuple(one for one in self.series if one[0]["op"] != "copy")
        if not others:
            return self
        return replace(self, series=others, copies=len(self.series) - len(others))

    def entries(self) -> list[Entry]:
        """All of them, series by series."""
        return [entry for one in self.series for entry in one]


def history(store: Path, asked: SeriesQuery, last: int) -> History:
    """What is kept of each variant that was timed, the last so many runs of it, wrong ones among them.

    WebnormError for no store, and for names that nothing has.
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
    """Rows by what they are of; one without a time goes to those of its variant that have some."""
    ways: dict[tuple[Cell, ...], dict[tuple[Cell, ...], None]] = {}
    for row in rows:
        if row["timed"]:
            ways.setdefault(_of(row), {})[tuple(row[name] for name in _HOW)] = None
    found: dict[tuple[Cell, ...], list[Entry]] = {}
    for row in rows:
        own = tuple(row[name] for name in _HOW)
        for way in ways.get(_of(row), ()):
            if way == own or not row["timed"]:
                found.setdefault((*_of(row), *way), []).append(row)
    return [*found.values()]


def _of(row: Entry) -> tuple[Cell, ...]:
    return tuple(row[name] for name in (*PLATFORM, *_VARIANT))


def _place(series: Sequence[Entry]) -> tuple[str, ...]:
    """Problem by problem of each platform, the copies last."""
    first = series[0]
    title = tuple(str(first[name]) for name in (*PLATFORM, "op"))
    sizes = tuple(f"{first[name]:>20}" for name in ("dtype", "cols", "rows"))
    return (*title[:-1], str(first["op"] == "copy"), title[-1], *sizes, *(str(first[n]) for n in _VARIANT))


def to_json(found: History) -> str:
    """An object per line and entry; what is not known has no key."""
    lines = ",\n".join(
        json.dumps({name: one[name] for name in COLUMNS if one[name] is not None}) for one in found.entries()
    )
    head = json.dumps({"schema": SCHEMA, "reports": found.reports})
    return f'{head[:-1]}, "entries": [\n{lines}\n]}}\n'


def to_csv(found: History) -> str:
    """A line per entry, headed by the names of the columns."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(found.entries())
    return out.getvalue()
