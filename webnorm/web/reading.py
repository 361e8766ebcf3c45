"""Files of an export that are read back: each has to be there, inside the folder, and as it was written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError
from webnorm.files import atomic

AGAIN = "export again"


def read_listing(folder: Path, name: str) -> Any:
    """The JSON that lists a folder's files. Raises FileNotFoundError and NotADirectoryError as they come,
    and WebnormError for whatever else is wrong.
    """
    path = folder / name
    keep_inside(path, folder)
    try:
        return atomic.read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise WebnormError(f"{path}: not JSON ({error}); {AGAIN}") from error


def check_digests(folder: Path, listing: str, digests: Mapping[str, str]) -> None:
    """Raise WebnormError for a file whose SHA-256 is not the one in the listing, or that lies elsewhere."""
    for name, digest in digests.items():
        path = folder / name
        if not atomic.lies_in(path, folder):
            raise WebnormError(f"{folder / listing}: {name!r} lies outside of the folder; {AGAIN}")
        found = hashlib.sha256(read_file(path)).hexdigest()
        if found != digest:
            raise damaged_file_error(path, found, digest, listing=listing)


def keep_inside(path: Path, folder: Path) -> None:
    """Raise WebnormError for a link out of the folder, which may lead to anything."""
    try:
        linked = path.is_symlink()
    except OSError as error:
        raise _unreadable(path, error) from error
    if linked and not atomic.lies_in(path, folder):
        raise WebnormError(f"{path}: it is a link that leads out of the folder, or nowhere; {AGAIN}")


def read_file(path: Path) -> bytes:
    """What is in a file; WebnormError where it is missing or cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise WebnormError(f"{path}: expected a file; {AGAIN}")
        return atomic.read_bytes(path)
    except FileNotFoundError:
        raise WebnormError(f"{path}: the file is missing; {AGAIN}") from None
    except OSError as error:
        raise _unreadable(path, error) from error


def damaged_file_error(
    path: Path, digest: str | None, expected: str, what: str = "", *, listing: str
) -> WebnormError:
    """The error for a file, or `what` of it, that is not what the listing says."""
    got = "missing" if digest is None else f"{digest[:12]}..."
    return WebnormError(
        f"{path}: {what}sha256 is {got}, and {listing} expects {expected[:12]}...: "
        f"changed since the export; {AGAIN}"
    )


def _unreadable(path: Path, error: OSError) -> WebnormError:
    return WebnormError(f"{path}: cannot be read: {error.strerror or error}")
