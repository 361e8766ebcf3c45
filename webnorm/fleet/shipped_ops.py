"""Ops of the user's that travel by their content, to where their folders do not lie."""

from __future__ import annotations

import hashlib
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError
from webnorm.files import atomic
from webnorm.op.op import OpSource
from webnorm.op.op_folders import load_op_of_source
from webnorm.op.registry import user_ops

_PATTERNS = ("*.py", "*.wgsl", "*.toml", "lib/**/*.wgsl")
# Of one op's folder, together.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class ShippedOp:
    """The source of an op, and its folder's files: their paths in it, and what they hold."""

    source: OpSource
    files: tuple[tuple[str, bytes], ...] = field(repr=False)

    @classmethod
    def of(cls, source: OpSource) -> ShippedOp:
        """The op's folder as it is now; WebnormError where that cannot be read, or is too large."""
        return cls(source, tuple(_read(source.files)))

    def load(self) -> None:
        """Have this process know the op, from copies of its files that stay until the process ends."""
        source = replace(self.source, sent_to=str(self._folder()))
        known = user_ops().get(source.name)
        # The kernels may be other ones where the Python files are not.
        if known is None or known.source != source or known.source.sent_to != source.sent_to:
            load_op_of_source(source)

    def _folder(self) -> Path:
        digest = hashlib.blake2b(pickle.dumps(self.files), digest_size=16).hexdigest()
        folder = Path(_copies().name) / digest / self.source.name
        for name, content in self.files:
            path = folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return folder


@dataclass(frozen=True)
class Parcel:
    """An object that may hold ops of the user's and their problems, pickled, and the ops that it needs."""

    ops: tuple[ShippedOp, ...]
    content: bytes = field(repr=False)

    def opened(self) -> Any:
        """The object; WebnormError for an op that cannot be loaded here."""
        for op in self.ops:
            op.load()
        return pickle.loads(self.content)


def parcels(contents: Iterable[Any]) -> list[Parcel]:
    """Return a parcel for each object, all with the ops that this process knows, which are read once.

    Raises WebnormError for an op that cannot travel.
    """
    sources = [op.source for op in user_ops().values() if op.source is not None]
    ops = tuple(ShippedOp.of(source) for source in sources)
    return [Parcel(ops, pickle.dumps(content)) for content in contents]


def as_at_home(text: str) -> str:
    """A text that calls the files of ops what they are called where they came from."""
    for op in user_ops().values():
        if op.source is not None and op.source.sent_to is not None:
            text = text.replace(op.source.sent_to, op.source.folder)
    return text


@cache
def _copies() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="webnorm-ops-")


def _read(folder: Path) -> Iterator[tuple[str, bytes]]:
    size = 0
    for path in sorted({path for pattern in _PATTERNS for path in folder.glob(pattern)}):
        if not path.is_file() or not atomic.lies_in(path, folder):
            continue
        try:
            content = atomic.read_bytes(path, _MOST_BYTES)
        except OSError as error:
            raise WebnormError(f"{path}: cannot be read: {error.strerror or error}") from error
        size += len(content)
        if size > _MOST_BYTES:
            raise WebnormError(f"{path}: with it more than {_MOST_BYTES >> 20} MiB of {folder} would travel")
        yield path.relative_to(folder).as_posix(), content
