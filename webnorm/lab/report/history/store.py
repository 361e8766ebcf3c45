"""A store of results: one SQLite file that several processes can add reports to.

The table `reports` contains one row per report, with its whole JSON. The table `results` contains one row per
result, in plain columns. The view `history` joins both, ordered by `recorded`. If that is equal or unknown,
reports come in the order in which they were added.
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

# A series ends where one of these changes. webnorm's version and commit are not among them, because a series
# shows how they change a kernel.
PLATFORM = (*DEVICE_KEYS, "wgpu")
# Columns of a result, by SQLite type. rows, cols and eps are fixed, because older stores contain these names.
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
# Names are quoted, because some are SQL keywords.
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
# The condition for rows of `results` that are right and have a usable time: see Result.timed.
TIMED = f"status = 'pass' AND median_ns > {SHORTEST_NS!r} AND median_ns < {LONGEST_NS!r}"
COLUMNS = (*_OF_REPORT, *_OF_RESULT, "report", "result")
KIND = StoreFormat(b"wnrs", 1, _TABLES, "results", "webnorm store add")

Fate = Literal["added", "already stored", "replaced partial run"]


@dataclass(frozen=True)
class AddedReport:
    """The fate of an added file. A finished report replaces a stored report of the same, unfinished run."""

    path: Path
    fate: Fate
    report: Report


def store_path() -> Path:
    """Return the path of the store: $WEBNORM_STORE, or a file in the user's data."""
    return Path(os.environ.get("WEBNORM_STORE") or data_folder("store.db"))


def add_reports(store: Path, files: Sequence[Path]) -> list[AddedReport]:
    """Add the reports of all files, or none if one fails; create the store if necessary.

    A report is a duplicate if a stored one has the same JSON, or the same run id and platform. Raises
    WebnormError for a file that is no report, and for a store that is invalid or cannot be written.
    """
    try:
        given = [(path, *result_files.read_with_data(path)) for path in files]
        if KIND.there(store) and not writable(store):
            raise StoreUnusable(f"{store} cannot be written: it is read-only")
        if store == store_path():
            result_files.make_folder(store.parent)
        elif not store.parent.is_dir():
            raise StoreUnusable(f"{store} cannot be written: the folder {store.parent} does not exist")
        with connected(store, "rwc", "written", MOST_WAIT_S) as connection:
            KIND.begin(connection)
            found = [
                AddedReport(path, _add(connection, data, report), report) for path, data, report in given
            ]
            connection.execute("COMMIT")
        return found
    except WebnormError as error:
        raise WebnormError(f"{error}; nothing was added") from error


@contextmanager
def open_for_reading(store: Path) -> Iterator[sqlite3.Connection]:
    """Open a store for reading; raise WebnormError if it does not exist."""
    if not KIND.there(store) or not store.stat().st_size:
        raise WebnormError(f"{store} is no store; `webnorm store add FILES` creates one")
    # A connection that may write rolls back what an interrupted process left unfinished.
    mode = "rw" if writable(store) else "ro"
    with connected(store, mode, "read", MOST_WAIT_S) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def report_of(connection: sqlite3.Connection, number: int) -> Report:
    """Return the report with an id."""
    (text,) = connection.execute("SELECT report FROM reports WHERE id = ?", (number,)).fetchone()
    return result_files.report_from_json(json.loads(text))


def _add(connection: sqlite3.Connection, data: Any, report: Report) -> Fate:
    """Add a report with the JSON `data`, unless it is stored already."""
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
            return "already stored"
        connection.execute("DELETE FROM results WHERE report = ?", (number,))
        connection.execute("DELETE FROM reports WHERE id = ?", (number,))
        fate = "replaced partial run"
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
    """Return a result's columns; non-finite numbers are omitted, since the report contains them."""
    problem = result.problem
    cells: dict[str, Cell] = {**result.row(), "problem": str(problem), **problem.scalars}
    # Sorted, so that equal constants give equal texts.
    cells["constants"] = ";".join(
        f"{name}={int(result.constants[name])}" for name in sorted(result.constants)
    )
    # An eps can be an integer that exceeds SQLite's integers.
    cells |= {name: float(cell) for name in _COLUMNS["REAL"] if isinstance(cell := cells.get(name), int)}
    # Sizes and scalars of user ops have no columns: the problem's text contains them.
    return result_files.known({name: cells.get(name) for name in _OF_RESULT})


def _utc(text: str) -> str | None:
    """Return an ISO time in UTC to the second, so that texts sort by time; None for an invalid time."""
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return None
