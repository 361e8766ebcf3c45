"""What takes long to make and is run, kept in the user's cache folder for the next process.

What is read there is run. So nothing is taken from a folder or a file that anybody but this user can have
written, nor what is not whole. A cache that is broken, foreign or not writable is done without, and is no
reason to tell anybody. Where Python knows no owners of files, on Windows, nothing is kept.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from webnorm.errors import WebnormError
from webnorm.files import atomic

# Of a folder. Ten times what webnorm's largest template takes, and eleven versions of all of webnorm's, or
# Pythons.
MOST_BYTES, MOST_FILES = 1 << 20, 512
_DIGEST_BYTES = 32


def load(folder: str, key: bytes) -> bytes | None:
    """What is kept in the cache's folder of that name under the key; None without, or if it is not sound."""
    with suppress(OSError, WebnormError):
        path = _file_of(folder, key)
        _check_shut(os.lstat(path.parent))
        with atomic.opened(path, MOST_BYTES, links=False) as file:
            _check_shut(os.fstat(file.fileno()))
            data = atomic.read_whole(file, MOST_BYTES)
        # Python takes what it unmarshals at its word: half a file may end the process.
        if _digest(data[_DIGEST_BYTES:]) == data[:_DIGEST_BYTES]:
            return data[_DIGEST_BYTES:]
    return None


def store(folder: str, key: bytes, data: bytes) -> None:
    """Keep that, if it can be done; the oldest goes where there is too much."""
    with suppress(OSError, WebnormError):
        path = _file_of(folder, key)
        _make(path.parent)
        with atomic.replacing(path) as beside:
            beside.chmod(0o600)
            beside.write_bytes(_digest(data) + data)
        _forget_oldest(path.parent)


def _file_of(folder: str, key: bytes) -> Path:
    return atomic.cache_folder(folder) / blake2b(key, digest_size=16).hexdigest()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _is_ours(status: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and status.st_uid == os.geteuid()


def _check_shut(status: os.stat_result) -> None:
    """Raise PermissionError for what is another user's, or may be written by others; a link is."""
    if not _is_ours(status) or status.st_mode & 0o022:
        raise PermissionError


def _make(folder: Path) -> None:
    """Make the folder where it is not there; PermissionError in a home of another's, where root may, too."""
    above = next((parent for parent in folder.parents if parent.exists()), folder)
    if not _is_ours(above.stat()):
        raise PermissionError
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_shut(folder.lstat())


def _forget_oldest(folder: Path) -> None:
    """Leave half of the files where there are too many, the newest; killed processes' halves go, too."""
    found = list(folder.iterdir())
    if len(found) > MOST_FILES:
        found.sort(key=lambda path: path.lstat().st_mtime_ns)
        for path in found[: -MOST_FILES // 2]:
            path.unlink(missing_ok=True)
