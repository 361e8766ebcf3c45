"""A store of visits: one SQLite file, which several processes may write at once.

Its table `visits` has one row per content: the time of arrival (UTC, to the minute), the SHA-256 of the
content, its origin, and the content, which is the JSON of a results file. It stores no addresses.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from webnorm.errors import WebnormError
from webnorm.files.sqlite import StoreFormat, StoreUnusable, connected, writable

_PAGE_BYTES = 4096
_PATIENCE_S = 5.0
_TABLE = """
CREATE TABLE visits (
    id INTEGER PRIMARY KEY,
    received TEXT NOT NULL,
    sha256 TEXT NOT NULL UNIQUE,
    origin TEXT NOT NULL,
    content TEXT NOT NULL
) STRICT
"""
_KIND = StoreFormat(b"wnvs", 1, (_TABLE,), "visits", "webnorm collect --store")
# Checks for an existing store: see StoreFormat.there.
check_store = _KIND.there


@dataclass(frozen=True)
class StoredVisit:
    """A row of the store; `received` is in ISO 8601."""

    number: int
    received: str
    origin: str
    content: str

    def results(self) -> str:
        """Return the text of a results file, with its origin and time of arrival."""
        source = {"origin": self.origin, "received": self.received}
        return json.dumps({**json.loads(self.content), **source}) + "\n"


class VisitStore:
    """The file of a store, with a maximum size in bytes. Any thread may call its methods.

    The file is opened for each call, so a call reports if the file was moved away.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Make the file if it does not exist.

        Raises WebnormError for a file that is not a store, and StoreUnusable if it cannot be written.
        """
        self.path, self._most_pages = path, max(8, most_bytes // _PAGE_BYTES)
        with self._open("rwc", check_store(path)) as connection:
            _KIND.begin(connection)
            connection.execute("COMMIT")

    def add(self, content: str, origin: str) -> bool:
        """Store a content and return True, or return False if it is stored already.

        Raises StoreUnusable if it cannot be stored.
        """
        received = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")
        row = (received, sha256(content.encode()).hexdigest(), origin, content)
        with self._open("rw", check_store(self.path)) as connection:
            done = connection.execute(
                "INSERT INTO visits (received, sha256, origin, content) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (sha256) DO NOTHING",
                row,
            )
            return done.rowcount == 1

    @contextmanager
    def _open(self, mode: str, there: bool) -> Iterator[sqlite3.Connection]:
        if mode == "rw" and not there:
            raise StoreUnusable(f"{self.path}: the store is gone")
        if there and not writable(self.path):
            raise StoreUnusable(f"{self.path} cannot be written: it is read-only")
        with connected(self.path, mode, "written", _PATIENCE_S) as connection:
            connection.execute(f"PRAGMA max_page_count = {self._most_pages}")
            yield connection


def visits(path: Path) -> Iterator[StoredVisit]:
    """Yield all visits, the oldest first. Raises WebnormError for a path that is not a store."""
    if not check_store(path):
        raise WebnormError(f"{path}: no such store; expected a file that `webnorm collect` made")
    with connected(path, "ro", "read", _PATIENCE_S) as connection:
        for row in connection.execute("SELECT id, received, origin, content FROM visits ORDER BY id"):
            yield StoredVisit(*row)
