"""A cache of compiled code in the user's cache folder.

Cached code is executed. So webnorm reads only complete files, from folders and files that no other user can
write. If the cache is broken, owned by another user or not writable, webnorm works without it and prints no
message. On Windows, where Python does not report owners of files, nothing is cached.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from webnorm.errors import WebnormError
from webnorm.files import atomic

# Per file: ten times the size of webnorm's largest template. Per folder: all templates in eleven versions of
# webnorm or Python.
MOST_BYTES, MOST_FILES = 1 << 20, 512
_DIGEST_BYTES = 32


def load(folder: str, key: bytes) -> bytes | None:
    """Return the data cached in a folder under a key; None if there is none or it cannot be trusted."""
    with suppress(OSError, WebnormError):
        path = _file_of(folder, key)
        _check_shut(os.lstat(path.parent))
        with atomic.opened(path, MOST_BYTES, links=False) as file:
            _check_shut(os.fstat(file.fileno()))
            data = atomic.read_whole(file, MOST_BYTES)
        # `marshal` does not validate its input: a truncated file may crash the process.
        if _digest(data[_DIGEST_BYTES:]) == data[:_DIGEST_BYTES]:
            return data[_DIGEST_BYTES:]
    return None


def store(folder: str, key: bytes, data: bytes) -> None:
    """Cache data in a folder under a key, if possible, and remove the oldest files of a full folder."""
    with suppress(OSError, WebnormError):
        path = _file_of(folder, key)
        _make(path.parent)
        with atomic.replacing(path) as temporary:
            temporary.chmod(0o600)
            temporary.write_bytes(_digest(data) + data)
        _remove_oldest(path.parent)


def _file_of(folder: str, key: bytes) -> Path:
    return atomic.cache_folder(folder) / blake2b(key, digest_size=16).hexdigest()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _is_ours(status: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and status.st_uid == os.geteuid()


def _check_shut(status: os.stat_result) -> None:
    """Raise PermissionError if other users own or can write a file; links count as writable."""
    if not _is_ours(status) or status.st_mode & 0o022:
        raise PermissionError


def _make(folder: Path) -> None:
    """Create the folder. Raises PermissionError in another user's home, where root could create it."""
    above = next((parent for parent in folder.parents if parent.exists()), folder)
    if not _is_ours(above.stat()):
        raise PermissionError
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_shut(folder.lstat())


def _remove_oldest(folder: Path) -> None:
    """Keep the newest half of too many files; this also removes partial files of killed processes."""
    found = list(folder.iterdir())
    if len(found) > MOST_FILES:
        found.sort(key=lambda path: path.lstat().st_mtime_ns)
        for path in found[: -MOST_FILES // 2]:
            path.unlink(missing_ok=True)
