"""Bounded reads, atomic writes and locks for small files."""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from webnorm.errors import WebnormError

# webnorm writes no larger files, and Python needs many times as much memory to parse one.
MOST_BYTES = 64 << 20
# Nesting depth and largest integer of JSON. Both are far beyond the files that webnorm writes.
_DEEPEST = 32
_LARGEST = 1 << 128
# Seconds of waiting for another process before the user sees a message, and before an error.
PATIENCE_S, MOST_WAIT_S = 3.0, 30.0
# With these flags `open` does not block on a pipe and does not acquire a controlling terminal.
_UNBLOCKED = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
# File systems without locks.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})


# --- where a path leads


def shipped(folder: str) -> Path:
    """Return a data folder of webnorm: inside the package in a wheel, next to it in a checkout."""
    packaged = Path(str(resources.files("webnorm"))) / folder
    return packaged if packaged.is_dir() else packaged.parents[1] / folder


def resolved(path: str | Path) -> Path:
    """Return the absolute path with all links followed; the file need not exist.

    Raises OSError for circular links, for an invalid file name, and if the working folder was deleted.
    """
    try:
        found = Path(os.path.realpath(path))
    except ValueError as error:
        raise _invalid_name(error) from error
    except FileNotFoundError as error:
        raise _gone() from error
    try:
        status = os.lstat(found)
    except (FileNotFoundError, NotADirectoryError):
        return found
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return found


def absolute(path: Path) -> Path:
    """Return the absolute path without following links. Raises OSError if the working folder was deleted."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise _gone() from error


def lies_in(path: Path, folder: Path) -> bool:
    """Return whether a path is a folder or lies inside it, with links followed."""
    try:
        return resolved(path).is_relative_to(resolved(folder))
    except OSError:
        return False


def _gone() -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "the working folder was deleted")


def _invalid_name(error: ValueError) -> OSError:
    return OSError(errno.EINVAL, f"it is not a valid file name: {error}")


# --- reading


@contextmanager
def opened(path: str | Path, most: int, *, links: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file of at most `most` bytes for reading.

    Never blocks, even if a pipe replaces the file in between. Raises OSError for a file that is too large,
    for anything but a regular file (such as /dev/zero or a pipe), and for a link unless `links`.
    """
    try:
        status = os.stat(path)
    except ValueError as error:
        raise _invalid_name(error) from error
    # Checked before opening as well, because opening a device may have effects.
    _check_plain(status, most)
    more = _UNBLOCKED | (0 if links else getattr(os, "O_NOFOLLOW", 0))
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | more)) as file:
        _check_plain(os.fstat(file.fileno()), most)
        yield file


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most `most` bytes; raises OSError as `opened` does."""
    with opened(path, most) as file:
        return read_whole(file, most)


def read_whole(file: BinaryIO, most: int) -> bytes:
    """Return the content of a file that `opened` opened. Raises OSError if it exceeds `most` bytes."""
    data = file.read(most + 1)
    # Files in /proc report no size, and a non-blocking read may return None.
    if data is None:
        raise _not_plain()
    if len(data) > most:
        raise _too_large(len(data), most)
    return data


def _check_plain(status: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise _not_plain()
    if status.st_size > most:
        raise _too_large(status.st_size, most)


def _not_plain() -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file")


def _too_large(size: int, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has {size} bytes or more; it must have at most {most}")


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """Parse a JSON file. Raises OSError if it cannot be read, and ValueError if it is not accepted JSON."""
    return parse_json(read_bytes(path, most))


def parse_json(content: bytes) -> Any:
    """Parse JSON in UTF-8.

    Raises ValueError for invalid JSON, and for duplicate keys, non-finite or huge numbers, and deep nesting.
    """
    text = content.decode("utf-8")
    try:
        data = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
            object_pairs_hook=_without_duplicates,
        )
        deep = _deeper(data, _DEEPEST)
    except RecursionError:
        deep = True
    if deep:
        raise ValueError(f"lists and objects are nested more than {_DEEPEST} deep")
    return data


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a JSON number")


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"{literal[:20]} overflows float64")
    return value


def _bounded(literal: str) -> int:
    # `int` raises an error of its own for thousands of digits.
    if len(literal) > 40 or abs(value := int(literal)) >= _LARGEST:
        raise ValueError(f"an integer has {len(literal.lstrip('-'))} digits; it must be less than 2^128")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {duplicate!r} occurs twice")
    return found


def _deeper(data: Any, most: int) -> bool:
    """Return whether lists and objects are nested more than `most` deep."""
    level = [data]
    for _ in range(most + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [one for holder in level for one in (holder.values() if isinstance(holder, dict) else holder)]
    return True


# --- writing


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file next to `path`; it replaces `path` if the block succeeds.

    The file keeps the mode of the one that it replaces. After an error `path` is unchanged and no other file
    is left. Raises WebnormError if the file cannot be written.
    """
    with _temporary_file(path) as (temporary, target):
        yield temporary
        keep_mode(temporary, target)
        os.replace(temporary, target)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically. Raises WebnormError if it cannot be written."""
    with replacing(path) as temporary:
        # File names in the text may contain bytes that are not UTF-8.
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))


def check_writable(path: Path) -> None:
    """Raise WebnormError if `write_text` could not write `path`; the file itself is not touched."""
    with _temporary_file(path):
        pass


def unwritable(path: Path, error: OSError) -> WebnormError:
    """Return the error for a path that cannot be written; it names a parent that is no folder."""
    why: object = error.strerror or error
    # The folders may be hidden from this user. Then the system's reason remains.
    with suppress(OSError):
        if isinstance(error, FileNotFoundError) and not path.parent.exists():
            why = f"the folder {path.parent} does not exist"
        elif isinstance(error, NotADirectoryError | FileExistsError):
            why = next((f"{one} is a file; expected a folder" for one in path.parents if one.is_file()), why)
    return WebnormError(f"cannot write {path}: {why}")


def same_place(one: Path, other: Path) -> bool:
    """Return whether two paths name the same file. Raises WebnormError for one that cannot be written."""
    first, second = _target(one), _target(other)
    if first == second or str(first).casefold() != str(second).casefold():
        return first == second
    with _temporary_file(one) as (temporary, _):
        # Only the file system knows whether it distinguishes case.
        return temporary.with_name(temporary.name.swapcase()).exists()


def keep_mode(new: Path, old: Path) -> None:
    """Copy the mode of an existing file to a new one, and its owner if this user may."""
    try:
        status = old.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        return
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if hasattr(os, "chown"):
        # Only root may change the owner; others may still change the group.
        for owner in (status.st_uid, -1):
            with suppress(OSError):
                os.chown(new, owner, status.st_gid)
                break
        else:
            mode &= ~0o070
    new.chmod(mode)


def unnamed() -> BinaryIO:
    """Open a nameless temporary file for the output of a process; it disappears when closed.

    If no temporary folder has room, the file is in memory. So processes start even when the disk is full.
    """
    # Imported here because it takes long and reading files does not need it.
    import tempfile

    try:
        return cast(BinaryIO, tempfile.TemporaryFile(prefix="webnorm-"))
    except OSError as error:
        if not hasattr(os, "memfd_create"):
            raise WebnormError(f"cannot create a temporary file: {error.strerror or error}") from error
        return open(os.memfd_create("webnorm"), "w+b")


@contextmanager
def _temporary_file(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield an empty file next to the file that `path` leads to, and that file's path."""
    target = _target(path)
    # Not tempfile: only the owner can read its files, and that would stay so after the rename.
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        # `exist_ok=False` refuses a link that another user placed there.
        temporary.touch(mode=_first_mode(target), exist_ok=False)
        yield temporary, target
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _first_mode(target: Path) -> int:
    """Return the mode of the temporary file. Raises PermissionError if the target is read-only.

    A rename could replace a read-only file, but its owner has protected the content.
    """
    try:
        status = target.stat()
    except FileNotFoundError:
        return 0o666
    if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only")
    return 0o600


def _target(path: Path) -> Path:
    """Return the file to replace. A link stays a link, and the file that it points to is replaced."""
    try:
        target = resolved(path)
        # Checks `path` rather than `target`: /dev/stdout may lead to a pipe, which has no path.
        if path.exists() and not path.is_file():
            # Replacing would turn a device such as /dev/null into a regular file.
            kind = "a folder; expected a file" if path.is_dir() else "not a regular file"
            raise WebnormError(f"cannot write {path}: it exists and is {kind}")
    except OSError as error:
        raise unwritable(path, error) from error
    return target


# --- taking turns


@contextmanager
def lock(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock `path` for this process. Its folder must exist.

    The lock ends with the process. On a file system without locks this does nothing. `waiting` is called if
    another process has the lock for `PATIENCE_S` seconds. Raises WebnormError after `MOST_WAIT_S` seconds.
    """
    # Imported here because it takes long and reading files does not need it.
    from filelock import FileLock, Timeout

    target = _target(path)
    lock_path = target.with_name(f".{target.name[:40]}.lock")
    lock = FileLock(lock_path, fallback_to_soft=False)
    locked = True
    try:
        try:
            lock.acquire(timeout=PATIENCE_S)
        except Timeout:
            waiting()
            lock.acquire(timeout=MOST_WAIT_S - PATIENCE_S)
    except Timeout:
        raise WebnormError(
            f"cannot write {path}: another process has locked it for {MOST_WAIT_S:g} s; try again later"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            why = error.strerror or error
            raise WebnormError(f"cannot write {path}: cannot lock {lock_path}: {why}") from error
        locked = False
    try:
        yield
    finally:
        if locked:
            # Removed before the release: a process that has it open sees that it is gone and makes another.
            with suppress(OSError):
                lock_path.unlink()
            lock.release()


def cache_folder(name: str) -> Path:
    """Return the folder `name` for data that webnorm can recreate, in $XDG_CACHE_HOME or ~/.cache.

    The folder need not exist. Raises WebnormError for a user without a home folder.
    """
    return _folder_of("XDG_CACHE_HOME", ".cache", name)


def data_folder(name: str) -> Path:
    """Return the folder `name` for data that a user keeps, in $XDG_DATA_HOME or ~/.local/share.

    The folder need not exist. Raises WebnormError for a user without a home folder.
    """
    return _folder_of("XDG_DATA_HOME", ".local/share", name)


def _folder_of(variable: str, usual: str, name: str) -> Path:
    try:
        named = os.environ.get(variable, "")
        # The XDG specification requires that relative paths are ignored.
        folder = Path(named) if os.path.isabs(named) else Path.home() / usual
    except RuntimeError as error:
        raise WebnormError(f"this user has no home folder; set ${variable} to a folder") from error
    return folder / "webnorm" / name
