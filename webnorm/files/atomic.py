"""Small files: read whole if they are sane, written whole or not at all, changed by one process at a time."""

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

# More than this has no file that webnorm wrote; Python needs many times as much memory to hold it.
MOST_BYTES = 64 << 20
# Objects and lists within one another, and the largest integer: both are far beyond what webnorm writes.
_DEEPEST = 32
_LARGEST = 1 << 128
# Seconds until a wait for another process is told of, and until it is given up.
PATIENCE_S, MOST_WAIT_S = 3.0, 30.0
# Opened like that, a file waits for nothing and is no terminal of this process.
_UNBLOCKED = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
# File systems without locks.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})


# --- where a path leads


def shipped(folder: str) -> Path:
    """A folder of the repository that comes with webnorm: in the wheel, or beside the package."""
    packaged = Path(str(resources.files("webnorm"))) / folder
    return packaged if packaged.is_dir() else packaged.parents[1] / folder


def resolved(path: str | Path) -> Path:
    """Where a path leads, links followed, whether anything is there or not; OSError where it leads nowhere.

    It does for links in a circle, a name that no file has, and a path from a folder that is gone.
    """
    try:
        found = Path(os.path.realpath(path))
    except ValueError as error:
        raise _no_name(error) from error
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
    """A path from the root on, its links as they are; OSError where the folder it is relative to is gone."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise _gone() from error


def lies_in(path: Path, folder: Path) -> bool:
    """Whether a path leads into a folder, or to it."""
    try:
        return resolved(path).is_relative_to(resolved(folder))
    except OSError:
        return False


def _gone() -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "the folder that it is relative to is gone")


def _no_name(error: ValueError) -> OSError:
    return OSError(errno.EINVAL, f"it is no name of a file: {error}")


# --- reading


@contextmanager
def opened(path: str | Path, most: int, *, links: bool = True) -> Iterator[BinaryIO]:
    """A plain file, open for reading bytes; no more than `most` were in it when it was opened.

    OSError for what is no plain file, such as /dev/zero or a pipe without a writer, or too large; and where
    not `links`, for a link. What takes the file's place in between is not waited for either.
    """
    try:
        status = os.stat(path)
    except ValueError as error:
        raise _no_name(error) from error
    # Before it is opened, too: what is no file may do something then.
    _check_plain(status, most)
    more = _UNBLOCKED | (0 if links else getattr(os, "O_NOFOLLOW", 0))
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | more)) as file:
        _check_plain(os.fstat(file.fileno()), most)
        yield file


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """What is in a plain file; OSError for anything else, as `opened` has it."""
    with opened(path, most) as file:
        return read_whole(file, most)


def read_whole(file: BinaryIO, most: int) -> bytes:
    """What is in a file that `opened` gives; OSError where that is too much."""
    data = file.read(most + 1)
    # Those of /proc tell no size, and may have nothing to be read yet.
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
    return OSError(errno.EINVAL, "it is no plain file")


def _too_large(size: int, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has {size} bytes or more; expected {most} at most")


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """The JSON in a plain file; OSError where that cannot be read, ValueError where it is no sane JSON."""
    return parse_json(read_bytes(path, most))


def parse_json(content: bytes) -> Any:
    """The same for JSON that was sent."""
    text = content.decode("utf-8")
    try:
        data = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
            object_pairs_hook=_without_twins,
        )
        deep = _deeper(data, _DEEPEST)
    except RecursionError:
        deep = True
    if deep:
        raise ValueError(f"more than {_DEEPEST} lists and objects lie within one another")
    return data


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is no JSON number")


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"{literal[:20]} is more than float64 holds")
    return value


def _bounded(literal: str) -> int:
    # Python itself refuses to read some thousands of digits.
    if len(literal) > 40 or abs(value := int(literal)) >= _LARGEST:
        raise ValueError(f"an integer of {len(literal.lstrip('-'))} digits; expected less than 2^128")
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twin!r} is there twice")
    return found


def _deeper(data: Any, most: int) -> bool:
    """Whether there are more than so many lists and objects within one another."""
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
    """Give a file beside `path` to write to; it becomes `path` when the block ends well.

    Who may read it is who might read what it replaces. WebnormError where that is impossible; after any error
    `path` is what it was, and nothing else is left.
    """
    with _beside(path) as (beside, target):
        yield beside
        keep_mode(beside, target)
        os.replace(beside, target)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all; WebnormError where it cannot be written."""
    with replacing(path) as beside:
        # Names of files may hold what UTF-8 does not.
        beside.write_bytes(text.encode("utf-8", "backslashreplace"))


def check_writable(path: Path) -> None:
    """Raise WebnormError now if `write_text` could not write there later; `path` itself is not touched."""
    with _beside(path):
        pass


def same_place(one: Path, other: Path) -> bool:
    """Whether what is written to one of two paths would be replaced by what is written to the other.

    WebnormError for one that cannot be written.
    """
    first, second = _target(one), _target(other)
    if first == second or str(first).casefold() != str(second).casefold():
        return first == second
    with _beside(one) as (beside, _):
        # Whether names differ by case alone is the file system's to say.
        return beside.with_name(beside.name.swapcase()).exists()


def keep_mode(new: Path, old: Path) -> None:
    """Give a new file the mode of an old one, if there is one, and its owner as far as that can be done."""
    try:
        status = old.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        return
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if hasattr(os, "chown"):
        # Only root gives files away.
        for owner in (status.st_uid, -1):
            with suppress(OSError):
                os.chown(new, owner, status.st_gid)
                break
        else:
            mode &= ~0o070
    new.chmod(mode)


def unnamed() -> BinaryIO:
    """A file without a name, for what a process prints: nobody has to remove it.

    It lies in memory where no temporary folder has room, lest a full disk keep processes from being started.
    """
    # Who only reads files need not wait for it.
    import tempfile

    try:
        return cast(BinaryIO, tempfile.TemporaryFile(prefix="webnorm-"))
    except OSError as error:
        if not hasattr(os, "memfd_create"):
            raise WebnormError(f"no temporary file can be made: {error.strerror or error}") from error
        return open(os.memfd_create("webnorm"), "w+b")


@contextmanager
def _beside(path: Path) -> Iterator[tuple[Path, Path]]:
    target = _target(path)
    # Not tempfile: its files are readable by their owner only, and would stay so once renamed.
    beside = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        # A file of its own: a link that somebody laid there is not followed.
        beside.touch(mode=_first_mode(target), exist_ok=False)
        yield beside, target
    except OSError as error:
        raise WebnormError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def _first_mode(target: Path) -> int:
    """The mode to write a file with that is to replace another; PermissionError for one that is not writable.

    The name would be free to be taken, but who takes the right to write away means the text.
    """
    try:
        status = target.stat()
    except FileNotFoundError:
        return 0o666
    if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only")
    return 0o600


def _target(path: Path) -> Path:
    """The file to replace: a link stays a link, what it points to is replaced."""
    try:
        target = resolved(path)
        # Looked at as it was given: /dev/stdout leads to a pipe, which has no place.
        if path.exists() and not path.is_file():
            # Replacing would turn a device such as /dev/null into a plain file.
            raise WebnormError(f"cannot write {path}: it is there and is not a plain file")
    except OSError as error:
        raise WebnormError(f"cannot write {path}: {error.strerror or error}") from error
    return target


# --- taking turns


@contextmanager
def lock(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold off other processes that want their turn with `path`, in a folder that is there.

    A process that ends, however it ends, has no turn any more. `waiting` is called where another's takes
    seconds; WebnormError where it takes much longer. A file system without locks knows no turns.
    """
    # Who only reads need not wait for it.
    from filelock import FileLock, Timeout

    target = _target(path)
    beside = target.with_name(f".{target.name[:40]}.lock")
    lock = FileLock(beside, fallback_to_soft=False)
    held = True
    try:
        try:
            lock.acquire(timeout=PATIENCE_S)
        except Timeout:
            waiting()
            lock.acquire(timeout=MOST_WAIT_S - PATIENCE_S)
    except Timeout:
        raise WebnormError(
            f"cannot write {path}: another process has been writing it for {MOST_WAIT_S:g} s"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            why = error.strerror or error
            raise WebnormError(f"cannot write {path}: its lock {beside}: {why}") from error
        held = False
    try:
        yield
    finally:
        if held:
            # While it is held: who opened it meanwhile sees that it is gone, and opens another.
            with suppress(OSError):
                beside.unlink()
            lock.release()


def cache_folder(name: str) -> Path:
    """The folder called `name` for what webnorm can make again: in $XDG_CACHE_HOME, or else in ~/.cache.

    Webnorm itself may lie where nobody may write. The folder need not exist. WebnormError for a user without
    a home.
    """
    return _folder_of("XDG_CACHE_HOME", ".cache", name)


def data_folder(name: str) -> Path:
    """The same for what a user wants to keep: in $XDG_DATA_HOME, or else in ~/.local/share."""
    return _folder_of("XDG_DATA_HOME", ".local/share", name)


def _folder_of(variable: str, usual: str, name: str) -> Path:
    try:
        named = os.environ.get(variable, "")
        # The specification has relative ones ignored: what lies where somebody happens to work is not ours.
        folder = Path(named) if os.path.isabs(named) else Path.home() / usual
    except RuntimeError as error:
        raise WebnormError(f"this user has no home folder; name a folder in ${variable}") from error
    return folder / "webnorm" / name
