"""SQLite files of webnorm's own: marked in their header, and what is not is refused before it is opened."""

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
# Where SQLite's header has user_version and application_id, and how many bytes it has.
_VERSION, _APPLICATION, _HEADER = slice(60, 64), slice(68, 72), 100


class StoreUnusable(WebnormError):
    """A store cannot be written, or read, now; `full` where that is for want of room."""

    def __init__(self, message: str, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


@dataclass(frozen=True)
class StoreFormat:
    """What tells a store from other people's databases: `application`, four letters in the file's header, and
    the `version` of its `tables`, a statement each. `of` says what it is a store of, `maker` what makes one.
    """

    application: bytes
    version: int
    tables: tuple[str, ...]
    of: str
    maker: str

    def there(self, path: Path) -> bool:
        """Whether there is a store, or an empty file; WebnormError for what else there is, not opened."""
        again = f"expected a file that `{self.maker}` made, or none"
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise WebnormError(f"{path} is no plain file; {again}")
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
            raise WebnormError(f"{path} is no store of {self.of}, and stays as it is; {again}")
        version = int.from_bytes(header[_VERSION], "big")
        if version != self.version:
            raise WebnormError(f"{path} is a store of version {version}; this webnorm knows {self.version}")
        return True

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin to write, others having no turn meanwhile; a new file has its tables from COMMIT on."""
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have been faster.
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in self.tables:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {int.from_bytes(self.application, 'big')}")
            connection.execute(f"PRAGMA user_version = {self.version}")


def writable(path: Path) -> bool:
    """Whether a file that is there may be written. Root may write everything; who takes the right away means
    it.
    """
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)


@contextmanager
def connected(path: Path, mode: str, doing: str, patience_s: float) -> Iterator[sqlite3.Connection]:
    """A connection in which a statement is a transaction, unless one is begun: what the block does not commit
    is undone. StoreUnusable for what fails, and where another process keeps the file for longer than
    `patience_s`: then it cannot be `doing`, "read" or "written". The empty file of a store that did not fit
    goes.
    """
    new = mode == "rwc" and not path.exists()
    try:
        address = f"{path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(address, patience_s, isolation_level=None, uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        # Busy is no reason: another process is about to write what this one made.
        if new and code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            with suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()
        raise StoreUnusable(f"{path} cannot be {doing}: {error}", code == sqlite3.SQLITE_FULL) from error
