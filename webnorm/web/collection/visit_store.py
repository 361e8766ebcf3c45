"""A store of visits: one SQLite file, which several processes may write at once.

Its table `visits` has a row for each content: when it came (UTC, to the minute), the SHA-256 of the content,
where it is from, and the content, a results file's JSON. No address is among them.
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
# Whether there is a store: see Kind.there.
check_store = _KIND.there


@dataclass(frozen=True)
class StoredVisit:
    """A row: `received` as ISO 8601."""

    number: int
    received: str
    origin: str
    content: str

    def results(self) -> str:
        """The text of a results file, which says where it is from."""
        told = {"origin": self.origin, "received": self.received}
        return json.dumps({**json.loads(self.content), **told}) + "\n"


class VisitStore:
    """A store's file, of at most so many bytes. Its methods are called from any thread.

    Nothing is kept open in between: who moves the file away is told so by the next call.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Make the file where there is none. WebnormError for one that is no store, which stays as it is, and
        StoreUnusable for one that cannot be written.
        """
        self.path, self._most_pages = path, max(8, most_bytes // _PAGE_BYTES)
        with self._open("rwc", check_store(path)) as connection:
            _KIND.begin(connection)
            connection.execute("COMMIT")

    def add(self, content: str, origin: str) -> bool:
        """Keep a content; False where it is there already. Raises StoreUnusable, and then nothing is kept."""
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
    """All visits, the oldest first; WebnormError for what is no store."""
    if not check_store(path):
        raise WebnormError(f"{path}: there is no such store; expected one that `webnorm collect` made")
    with connected(path, "ro", "read", _PATIENCE_S) as connection:
        for row in connection.execute("SELECT id, received, origin, content FROM visits ORDER BY id"):
            yield StoredVisit(*row)
