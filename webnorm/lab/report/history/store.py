"""A store of results: one SQLite file, which several processes may add reports to.

`reports` has a row for each report, with its whole JSON; `results` one for each result, in plain columns; the
view `history` both, in the order of `recorded` and, where that is equal or not known, of being added.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from webnorm.errors import WebnormError, utf8
from webnorm.files.atomic import MOST_WAIT_S, data_folder
from webnorm.files.sqlite import StoreFormat, StoreUnusable, connected, writable
from webnorm.lab.report.comparison import DEVICE_KEYS
from webnorm.lab.results import result_files
from webnorm.lab.results.result import LONGEST_NS, SHORTEST_NS, Cell, Report, Result

# What a series of figures holds on: with another of these a new one begins. webnorm's version and commit are
# not among them: what they do to a kernel is what a series is to show.
PLATFORM = (*DEVICE_KEYS, "wgpu")
# Of a result, by SQLite's types. rows, cols and eps are names of the stores' format, which older ones hold.
_COLUMNS = {
    "TEXT": (
        "op",
        "kernel",
        "constants",
        "problem",
        "dtype",
        "distribution",
        "options",
        "case",
        "status",
        "reason",
        "flags",
        "auto",
        "timing_method",
        "cache",
        "calls",
    ),
    "INTEGER": ("rows", "cols", "bytes"),
    "REAL": (
        "median_ns",
        "p20_ns",
        "p80_ns",
        "gbps",
        "percent_of_copy",
        "eps",
        "scale",
        "max_abs_error",
        "max_rel_error",
        "tolerance",
    ),
}
_OF_RESULT = tuple(name for names in _COLUMNS.values() for name in names)
_OF_REPORT = ("recorded", "run", "commit", "webnorm", *PLATFORM, "host", "command", "complete", "added")
# SQL has words of its own among them.
_TABLES = (
    f"""
CREATE TABLE reports (
    id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    run TEXT,
    recorded TEXT,
    added TEXT NOT NULL,
    complete INTEGER,
    command TEXT,
    host TEXT,
    "commit" TEXT,
    webnorm TEXT NOT NULL,
    {", ".join(f'"{name}" TEXT NOT NULL' for name in PLATFORM)},
    report TEXT NOT NULL,
    UNIQUE (run, {", ".join(f'"{name}"' for name in PLATFORM)})
) STRICT
""",
    f"""
CREATE TABLE results (
    id INTEGER PRIMARY KEY,
    report INTEGER NOT NULL REFERENCES reports (id),
    {", ".join(f'"{name}" {kind}' for kind, names in _COLUMNS.items() for name in names)}
) STRICT
""",
    "CREATE INDEX results_of_reports ON results (report)",
    "CREATE INDEX results_of_problems ON results (op, kernel, rows, cols, dtype)",
    f"""
CREATE VIEW history AS
SELECT {", ".join(f'reports."{name}"' for name in _OF_REPORT)},
    {", ".join(f'results."{name}"' for name in _OF_RESULT)}, results.report, results.id AS result
FROM results JOIN reports ON reports.id = results.report
ORDER BY reports.recorded, reports.id, results.id
""",
)
# Of a row of `results`, that it is a right answer with a usable time: see Result.timed.
TIMED = f"status = 'pass' AND median_ns > {SHORTEST_NS!r} AND median_ns < {LONGEST_NS!r}"
COLUMNS = (*_OF_REPORT, *_OF_RESULT, "report", "result")
KIND = StoreFormat(b"wnrs", 1, _TABLES, "results", "webnorm store add")

Fate = Literal["added", "kept already", "finished since"]


@dataclass(frozen=True)
class AddedReport:
    """What became of a file: of a run that was kept while it went on, the finished report takes the place."""

    path: Path
    fate: Fate
    report: Report


def store_path() -> Path:
    """Where the store is: $WEBNORM_STORE, or a file of the user's data."""
    return Path(os.environ.get("WEBNORM_STORE") or data_folder("store.db"))


def add_reports(store: Path, files: Sequence[Path]) -> list[AddedReport]:
    """Keep the reports of all files, or of none; the store is made where there is none.

    A report is there already where one of its platform has the id of its run, or where one has the same JSON.
    Raises WebnormError for a file that is no report, for a store that is none, and where it cannot be
    written.
    """
    try:
        given = [(path, *result_files.read_with_data(path)) for path in files]
        if KIND.there(store) and not writable(store):
            raise StoreUnusable(f"{store} cannot be written: it is read-only")
        if store == store_path():
            result_files.make_folder(store.parent)
        elif not store.parent.is_dir():
            raise StoreUnusable(f"{store} cannot be written: there is no folder {store.parent}")
        with connected(store, "rwc", "written", MOST_WAIT_S) as connection:
            KIND.begin(connection)
            found = [
                AddedReport(path, _kept(connection, data, report), report) for path, data, report in given
            ]
            connection.execute("COMMIT")
        return found
    except WebnormError as error:
        raise WebnormError(f"{error}; nothing was added") from error


@contextmanager
def open_for_reading(store: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a store, to look at it; WebnormError where there is none."""
    if not KIND.there(store) or not store.stat().st_size:
        raise WebnormError(f"{store}: there is no such store; `webnorm store add FILES` makes one")
    # What an interrupted process left half done is undone by who may write.
    mode = "rw" if writable(store) else "ro"
    with connected(store, mode, "read", MOST_WAIT_S) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def report_of(connection: sqlite3.Connection, number: int) -> Report:
    """The report with an id."""
    (text,) = connection.execute("SELECT report FROM reports WHERE id = ?", (number,)).fetchone()
    return result_files.report_from_json(json.loads(text))


def _kept(connection: sqlite3.Connection, data: Any, report: Report) -> Fate:
    """Keep a report whose JSON is `data`, if it is not there."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digest = sha256(text.encode()).hexdigest()
    origin = report.origin
    run = utf8(origin.run) if origin and origin.run else None
    platform = {name: utf8(str(report.device.get(name, ""))) for name in PLATFORM}
    fate: Fate = "added"
    alike = " AND ".join(f'"{name}" = ?' for name in ("run", *PLATFORM))
    same = f"SELECT id, complete FROM reports WHERE sha256 = ? OR {alike}"
    for number, complete in connection.execute(same, (digest, run, *platform.values())).fetchall():
        if complete != 0 or report.complete is not True:
            return "kept already"
        connection.execute("DELETE FROM results WHERE report = ?", (number,))
        connection.execute("DELETE FROM reports WHERE id = ?", (number,))
        fate = "finished since"
    row: dict[str, Cell] = {
        "sha256": digest,
        "run": run,
        "recorded": _utc(origin.recorded) if origin else None,
        "added": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "complete": report.complete,
        **{name: getattr(origin, name, None) for name in ("command", "host", "commit")},
        "webnorm": report.webnorm,
        **platform,
        "report": text,
    }
    number = _insert(connection, "reports", row)
    for result in report.results:
        _insert(connection, "results", {"report": number, **_row(result)})
    return fate


def _insert(connection: sqlite3.Connection, table: str, row: dict[str, Cell]) -> int | None:
    names, signs = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
    values = [utf8(cell) if isinstance(cell, str) else cell for cell in row.values()]
    done = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({signs})", values)
    return done.lastrowid


def _row(result: Result) -> dict[str, Cell]:
    """A result's columns; a number that is not finite has none: the report has it."""
    problem = result.problem
    cells: dict[str, Cell] = {**result.row(), "problem": str(problem), **problem.scalars}
    # In one order, so that equal constants are equal texts.
    cells["constants"] = ";".join(
        f"{name}={int(result.constants[name])}" for name in sorted(result.constants)
    )
    # An eps may be an integer that SQLite's are too small for.
    cells |= {name: float(cell) for name in _COLUMNS["REAL"] if isinstance(cell := cells.get(name), int)}
    # An op of the user's has other sizes and scalars: they are in the text of its problem.
    return result_files.known({name: cells.get(name) for name in _OF_RESULT})


def _utc(text: str) -> str | None:
    """A moment in UTC to the second, so that texts are in the order of time; None for what is none."""
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return None
