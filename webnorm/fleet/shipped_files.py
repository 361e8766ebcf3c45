"""Files that are sent to workers by content: kernels with their snippets, and arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from webnorm.errors import SourceLocation, WebnormError
from webnorm.files import atomic
from webnorm.fleet import shipped_ops
from webnorm.kernels.headers.header import home
from webnorm.kernels.headers.sources import is_wgsl
from webnorm.lab.results.result import Result
from webnorm.op.registry import OPS, is_op_folder, user_ops

# The files of a kernels' folder that are sent: kernels, files next to them, and snippets.
_PATTERNS = ("*.wgsl", "lib/**/*.wgsl", *(f"{op}/*.wgsl" for op in OPS))
_MOST_BYTES = 256 << 20
# The prefix of places in the folder of a user's op.
_OF_OP = "op:"


@dataclass(frozen=True, kw_only=True)
class ShippedFiles:
    """The files of kernels and of an input array, with the kernels' whole folders.

    A place is a relative path in the folder where the files are unpacked. `texts` has the contents by place,
    and `known` pairs places with the sender's names. `names` contains kernels' names, and places for names
    that end with .wgsl. `roots` and `input` are places.
    """

    names: tuple[str, ...] | None = None
    roots: tuple[str, ...] = ()
    input: str | None = None
    texts: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    known: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, names: Sequence[str] | None = None, roots: Sequence[Path] = (), input: Path | None = None
    ) -> ShippedFiles:
        """Read the files now; WebnormError if one cannot be read or they are too large to send."""
        packing = _Packing()
        return cls(
            names=None
            if names is None
            else tuple(packing.kernel(one) if is_wgsl(one) else one for one in names),
            roots=tuple(packing.folder(root, str(root)) for root in roots),
            input=None if input is None else packing.array(input),
            texts=packing.texts,
            known=tuple(packing.known),
        )

    @contextmanager
    def unpacked(self) -> Iterator[UnpackedFiles]:
        """Write the files to a temporary folder that exists until the block ends."""
        with tempfile.TemporaryDirectory(prefix="webnorm-") as given:
            folder = Path(given).resolve()
            for place, content in self.texts.items():
                path = folder / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            yield UnpackedFiles(self, folder)


@dataclass(frozen=True)
class UnpackedFiles:
    """Shipped files in a folder."""

    shipped: ShippedFiles
    folder: Path

    @property
    def names(self) -> list[str] | None:
        """The names of kernels, with paths to the unpacked files."""
        given = self.shipped.names
        if given is None:
            return None
        return [self._place(one) if is_wgsl(one) else one for one in given]

    def _place(self, name: str) -> str:
        op = user_ops().get(name.partition("/")[0].removeprefix(_OF_OP))
        if not name.startswith(_OF_OP) or op is None or op.source is None:
            return str(self.folder / name)
        return str(op.source.files / name.partition("/")[2])

    @property
    def roots(self) -> list[Path]:
        """The folders of kernels."""
        return [self.folder / one for one in self.shipped.roots]

    @property
    def input(self) -> Path | None:
        """The array's file."""
        return None if self.shipped.input is None else self.folder / self.shipped.input

    def restored(self, result: Result) -> Result:
        """Return a result with the sender's names of files."""
        place, reason = result.place, result.reason
        if place is not None:
            place = SourceLocation(self.restored_text(place.file), place.line, place.column, place.length)
        return replace(result, place=place, reason=None if reason is None else self.restored_text(reason))

    def restored_text(self, text: str) -> str:
        """Return a text with the sender's names of files."""
        for place, name in self.shipped.known:
            text = text.replace(str(self.folder / place), name)
        return shipped_ops.restored_text(text)


class _Packing:
    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.known: list[tuple[str, str]] = []
        self._folders: dict[Path, str] = {}
        self._size = 0

    def kernel(self, name: str) -> str:
        """Add a kernel's file and its folder, and return the file's place."""
        path = Path(name)
        folder, op = home(path)
        if is_op_folder(path.parent):
            # The op's parcel contains this file.
            return f"{_OF_OP}{op}/{path.name}"
        inside = atomic.absolute(path).parent.resolve() / path.name
        place = f"{self.folder(folder, str(folder))}/{inside.relative_to(folder.resolve()).as_posix()}"
        self._put(place, path)
        # Before the folder's entry, so that messages contain the name that the user typed.
        self.known.insert(0, (place, name))
        return place

    def folder(self, folder: Path, name: str) -> str:
        """Add a folder of kernels, and return its place."""
        real = folder.resolve()
        if real not in self._folders:
            place = self._folders[real] = str(len(self._folders))
            for pattern in _PATTERNS:
                for path in sorted(real.glob(pattern)):
                    if path.is_file() and atomic.lies_in(path, real):
                        self._put(f"{place}/{path.relative_to(real).as_posix()}", path)
            self.known.append((place, name))
        return self._folders[real]

    def array(self, path: Path) -> str:
        """Add an array's file, and return its place."""
        place = f"input/{path.name}"
        self._put(place, path)
        self.known.append((place, str(path)))
        return place

    def _put(self, place: str, path: Path) -> None:
        try:
            content = atomic.read_bytes(path, _MOST_BYTES)
        except OSError as error:
            raise WebnormError(f"{path}: cannot be read: {error.strerror or error}") from error
        self._size += 0 if place in self.texts else len(content)
        if self._size > _MOST_BYTES:
            raise WebnormError(
                f"{path}: with this file, more than {_MOST_BYTES >> 20} MiB would be sent to each worker"
            )
        self.texts[place] = content
