"""A store of visits: one SQLite file, which several processes may write at once.

Its table `visits` has a row for each content: when it came (UTC, to the minute), the SHA-256 of the content,
where it is from, and the content, a results file's JSON. No address is among them.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from webnorm.errors import WebnormError

# "wnvs", in the header of the file: what tells it from other people's databases.
_APPLICATION = 0x776E7673
_VERSION = 1
_MAGIC = b"SQLite format 3\0"
# Where SQLite's header has user_version and application_id, four bytes each, and where it ends.
_AT_VERSION, _AT_APPLICATION, _HEADER = 60, 68, 100
_PAGE_BYTES = 4096
_PATIENCE_S = 5.0
_AGAIN = "expected a file that `webnorm collect --store` made, or none"
_SCHEMA = """
CREATE TABLE visits (
    id INTEGER PRIMARY KEY,
    received TEXT NOT NULL,
    sha256 TEXT NOT NULL UNIQUE,
    origin TEXT NOT NULL,
    content TEXT NOT NULL
) STRICT
"""


class Unusable(WebnormError):
    """A store cannot be written, or read, now; `full` where that is for want of room."""

    def __init__(self, message: str, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


@dataclass(frozen=True)
class Visit:
    """A row: `received` as ISO 8601."""

    number: int
    received: str
    origin: str
    content: str

    def results(self) -> str:
        """The text of a results file, which says where it is from."""
        told = {"origin": self.origin, "received": self.received}
        return json.dumps({**json.loads(self.content), **told}) + "\n"


class Store:
    """A store's file, of at most so many bytes. Its methods are called from any thread.

    Nothing is kept open in between: who moves the file away is told so by the next call.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Make the file where there is none. WebnormError for one that is no store, which stays as it is, and
        Unusable for one that cannot be written.
        """
        self.path, self._most_pages = path, max(8, most_bytes // _PAGE_BYTES)
        with self._open("rwc", check_store(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have been faster.
            if connection.execute("PRAGMA user_version").fetchone() == (0,):
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")

    def add(self, content: str, origin: str) -> bool:
        """Keep a content; False where it is there already. Raises Unusable, and then nothing is kept."""
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
            raise Unusable(f"{self.path}: the store is gone")
        _check_writable(self.path, there)
        with _connected(self.path, mode) as connection:
            connection.execute(f"PRAGMA max_page_count = {self._most_pages}")
            yield connection


def visits(path: Path) -> Iterator[Visit]:
    """All visits, the oldest first; WebnormError for what is no store."""
    if not check_store(path):
        raise WebnormError(f"{path}: there is no such store; expected one that `webnorm collect` made")
    with _connected(path, "ro") as connection:
        for row in connection.execute("SELECT id, received, origin, content FROM visits ORDER BY id"):
            yield Visit(*row)


def check_store(path: Path) -> bool:
    """Whether there is a store, or an empty file; WebnormError for something else, which is not opened."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise WebnormError(f"{path} is no plain file; {_AGAIN}")
        with path.open("rb") as file:
            header = file.read(_HEADER)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WebnormError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise WebnormError(f"cannot read {path}: {error}") from error
    if header and not (header.startswith(_MAGIC) and _number(header, _AT_APPLICATION) == _APPLICATION):
        raise WebnormError(f"{path} is no store of visits, and stays as it is; {_AGAIN}")
    version = _number(header, _AT_VERSION) if header else _VERSION
    if version != _VERSION:
        raise WebnormError(f"{path} is a store of version {version}; this webnorm knows {_VERSION}")
    return True


def _number(header: bytes, at: int) -> int:
    return int.from_bytes(header[at : at + 4], "big")


def _check_writable(path: Path, there: bool) -> None:
    """Root may write everything; who takes the right away means it."""
    if there and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise Unusable(f"{path} cannot be written: it is read-only")


@contextmanager
def _connected(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection in which a statement is a transaction, unless one is begun; Unusable for what fails."""
    try:
        address = f"{path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(address, _PATIENCE_S, isolation_level=None, uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        doing = "read" if mode == "ro" else "written"
        raise Unusable(f"{path} cannot be {doing}: {error}", code == sqlite3.SQLITE_FULL) from error
