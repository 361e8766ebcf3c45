"""SQLite files that webnorm writes. A mark in the header identifies them; other files are never opened."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from webnorm.errors import WebnormError

_MAGIC = b"SQLite format 3\0"
# The positions of user_version and application_id in SQLite's header, and the header's size.
_VERSION, _APPLICATION, _HEADER = slice(60, 64), slice(68, 72), 100


class StoreUnusable(WebnormError):
    """A store cannot be read or written at the moment; `full` is set if the disk is full."""

    def __init__(self, message: str, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


@dataclass(frozen=True)
class StoreFormat:
    """The identification of a kind of store.

    `application` is four letters in the file's header. `version` is the version of `tables`, the CREATE
    statements. In messages, `of` names the content ("results") and `maker` the command that creates a store.
    """

    application: bytes
    version: int
    tables: tuple[str, ...]
    of: str
    maker: str

    def there(self, path: Path) -> bool:
        """Return whether `path` is a store or an empty file. Raises WebnormError for any other file."""
        again = f"name a file that `{self.maker}` made, or a new one"
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise WebnormError(f"{path} is not a regular file; {again}")
            with path.open("rb") as file:
                header = file.read(_HEADER)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise WebnormError(f"cannot read {path}: {why}") from error
        if not header:
            return True
        if not (header.startswith(_MAGIC) and header[_APPLICATION] == self.application):
            raise WebnormError(f"{path} is not a store of {self.of} and was not changed; {again}")
        version = int.from_bytes(header[_VERSION], "big")
        if version != self.version:
            raise WebnormError(
                f"{path} is a store of version {version}; this webnorm reads version {self.version}"
            )
        return True

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin an exclusive write transaction, and create the tables in a new file."""
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have created the tables in the meantime.
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in self.tables:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {int.from_bytes(self.application, 'big')}")
            connection.execute(f"PRAGMA user_version = {self.version}")


def writable(path: Path) -> bool:
    """Return whether an existing file may be written. A read-only file is protected from root, too."""
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)


@contextmanager
def connected(path: Path, mode: str, doing: str, patience_s: float) -> Iterator[sqlite3.Connection]:
    """Yield a connection in which each statement is a transaction, unless BEGIN starts one.

    Closing the connection undoes an uncommitted transaction. If the disk is full, the empty file of a new
    store is removed.

    Parameters
    ----------
    mode
        SQLite's mode: "ro", "rw" or "rwc".
    doing
        The word for messages: "read" or "written".
    patience_s
        Seconds to wait for another process.

    Raises
    ------
    StoreUnusable
        A statement failed, or another process kept the file locked.
    """
    new = mode == "rwc" and not path.exists()
    try:
        address = f"{path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(address, patience_s, isolation_level=None, uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        # Not for SQLITE_BUSY: another process is about to write the file that this one created.
        if new and code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            with suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()
        raise StoreUnusable(f"{path} cannot be {doing}: {error}", code == sqlite3.SQLITE_FULL) from error
