"""User ops that are sent to workers by content, because workers do not have their folders."""

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
from webnorm.op.registry import unregister_others, user_ops

_PATTERNS = ("*.py", "*.wgsl", "*.toml", "lib/**/*.wgsl")
# The limit for all files of one op's folder.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class ShippedOp:
    """The source of an op, and the relative paths and contents of its folder's files."""

    source: OpSource
    files: tuple[tuple[str, bytes], ...] = field(repr=False)

    @classmethod
    def of(cls, source: OpSource) -> ShippedOp:
        """Read the op's folder; WebnormError if it cannot be read or is too large."""
        return cls(source, tuple(_read(source.files)))

    def load(self) -> None:
        """Load the op from copies of its files, which stay until the process ends."""
        source = replace(self.source, sent_to=str(self._folder()))
        known = user_ops().get(source.name)
        # The kernels may differ even if the Python files are the same.
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
    """A pickled object, and the user ops that it may refer to."""

    ops: tuple[ShippedOp, ...]
    content: bytes = field(repr=False)

    def opened(self) -> Any:
        """Load these ops and no others, and return the object; WebnormError if an op cannot be loaded."""
        unregister_others(op.source.name for op in self.ops)
        for op in self.ops:
            op.load()
        return pickle.loads(self.content)


def parcels(contents: Iterable[Any]) -> list[Parcel]:
    """Return a parcel for each object; all contain the user ops of this process, which are read once.

    Raises WebnormError for an op that cannot be sent.
    """
    sources = [op.source for op in user_ops().values() if op.source is not None]
    ops = tuple(ShippedOp.of(source) for source in sources)
    return [Parcel(ops, pickle.dumps(content)) for content in contents]


def restored_text(text: str) -> str:
    """Return a text with the sender's names of ops' files."""
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
            limit = f"more than {_MOST_BYTES >> 20} MiB of {folder} would be sent"
            raise WebnormError(f"{path}: with this file, {limit}")
        yield path.relative_to(folder).as_posix(), content
