"""Files that travel by their content: kernels with their snippets, and arrays, to where they do not lie."""

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

# Of a folder of kernels: they, what lies beside, and the snippets.
_PATTERNS = ("*.wgsl", "lib/**/*.wgsl", *(f"{op}/*.wgsl" for op in OPS))
_MOST_BYTES = 256 << 20
# Begins the place of a file in the folder of an op of the user's.
_OF_OP = "op:"


@dataclass(frozen=True, kw_only=True)
class ShippedFiles:
    """The files that kernels (`names`, of which those that end with .wgsl are paths) and an array are read
    from, with all that lies in their folders.

    `texts` has contents by where they lie in the folder that they are unpacked to, `known` what these places
    are called at home, and `names`, `roots` and `input` are such places.
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
        """What is read from these, read now; WebnormError for what cannot be, or is too much to travel."""
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
        """All of it as files, in a folder that is there as long as the block runs."""
        with tempfile.TemporaryDirectory(prefix="webnorm-") as given:
            folder = Path(given).resolve()
            for place, content in self.texts.items():
                path = folder / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            yield UnpackedFiles(self, folder)


@dataclass(frozen=True)
class UnpackedFiles:
    """Carried files in a folder."""

    carried: ShippedFiles
    folder: Path

    @property
    def names(self) -> list[str] | None:
        """The names of kernels, with paths that lead to files here."""
        given = self.carried.names
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
        return [self.folder / one for one in self.carried.roots]

    @property
    def input(self) -> Path | None:
        """The array's file."""
        return None if self.carried.input is None else self.folder / self.carried.input

    def as_at_home(self, result: Result) -> Result:
        """A result that calls files what they are called where they came from."""
        place, reason = result.place, result.reason
        if place is not None:
            place = SourceLocation(self.named(place.file), place.line, place.column, place.length)
        return replace(result, place=place, reason=None if reason is None else self.named(reason))

    def named(self, text: str) -> str:
        """A text in which files are called that."""
        for place, name in self.carried.known:
            text = text.replace(str(self.folder / place), name)
        return shipped_ops.as_at_home(text)


class _Packing:
    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.known: list[tuple[str, str]] = []
        self._folders: dict[Path, str] = {}
        self._size = 0

    def kernel(self, name: str) -> str:
        """Where a kernel's file goes, with its folder."""
        path = Path(name)
        folder, op = home(path)
        if is_op_folder(path.parent):
            # It travels with its op.
            return f"{_OF_OP}{op}/{path.name}"
        inside = atomic.absolute(path).parent.resolve() / path.name
        place = f"{self.folder(folder, str(folder))}/{inside.relative_to(folder.resolve()).as_posix()}"
        self._put(place, path)
        # Before its folder: the file is called what somebody called it.
        self.known.insert(0, (place, name))
        return place

    def folder(self, folder: Path, name: str) -> str:
        """Where a folder of kernels goes."""
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
        """Where an array's file goes."""
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
                f"{path}: with it more than {_MOST_BYTES >> 20} MiB would travel to each worker"
            )
        self.texts[place] = content
