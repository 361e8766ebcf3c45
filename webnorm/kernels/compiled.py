"""webnorm's own templates as Jinja compiled them, kept in the user's cache folder for the next process.

What is read there is run. So nothing is taken from a folder or a file that anybody but this user can have
written, nor what is not whole. A cache that is broken, foreign or not writable is done without, and is no
reason to tell anybody.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import jinja2
from jinja2 import Environment
from jinja2.bccache import Bucket, BytecodeCache

from webnorm import files
from webnorm.errors import WebnormError

# Ten times what webnorm's largest takes, and eleven versions of all of webnorm's, or Pythons.
MOST_BYTES, MOST_FILES = 1 << 20, 512
_DIGEST_BYTES = 32
_OF_JINJA = ("lexer", "parser", "nodes", "visitor", "idtracking", "optimizer", "compiler")
# What makes code of a template's text, Jinja's part and webnorm's. (To ask for the version of an installed
# package takes 10 ms.)
_MAKERS = (
    *(Path(jinja2.__file__).with_name(f"{name}.py") for name in _OF_JINJA),
    *(Path(__file__).with_name(name) for name in ("marks.py", "templates.py")),
)


class Compiled(BytecodeCache):
    """A file for each template, which a newer text of the template takes over.

    Where Python knows no owners of files, on Windows, nothing is kept.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        """Have the bucket hold what is kept of its template, if that is there and sound."""
        with suppress(OSError, WebnormError):
            path = _file_of(bucket)
            _check_shut(os.lstat(path.parent))
            with files.opened(path, MOST_BYTES, links=False) as file:
                _check_shut(os.fstat(file.fileno()))
                data = files.read_whole(file, MOST_BYTES)
            # Python takes what it unmarshals at its word: half a file may end the process.
            if _digest(data[_DIGEST_BYTES:]) == data[:_DIGEST_BYTES]:
                bucket.bytecode_from_string(data[_DIGEST_BYTES:])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what the bucket holds, if that can be done."""
        with suppress(OSError, WebnormError):
            path = _file_of(bucket)
            _make(path.parent)
            data = bucket.bytecode_to_string()
            with files.replacing(path) as beside:
                beside.chmod(0o600)
                beside.write_bytes(_digest(data) + data)
            _forget_oldest(path.parent)


class CompiledOwn(Compiled):
    """Beside a user's templates: what is kept of webnorm's is read, of others nothing, and nothing is kept.

    A template is webnorm's by the file that was read, not by its name, which a user's snippet may have, too.
    A process that rendered something of a user's is not trusted to leave code for others.
    """

    def __init__(self, own: str) -> None:
        self.own = Path(own)

    def get_bucket(self, environment: Environment, name: str, filename: str | None, source: str) -> Bucket:
        """The bucket of a template, with what is kept of it where it is webnorm's."""
        if filename is not None and Path(filename).is_relative_to(self.own):
            return super().get_bucket(environment, name, filename, source)
        return Bucket(environment, self.get_cache_key(name, filename), self.get_source_checksum(source))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep nothing."""


def _file_of(bucket: Bucket) -> Path:
    name = blake2b(bucket.key.encode() + _made_by(), digest_size=16).hexdigest()
    return files.cache_folder("templates") / name


@cache
def _made_by() -> bytes:
    """What tells code from that of another Python, Jinja or webnorm, changes of a working tree included."""
    made = blake2b(MAGIC_NUMBER)
    for path in _MAKERS:
        made.update(path.read_bytes())
    return made.digest()


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
