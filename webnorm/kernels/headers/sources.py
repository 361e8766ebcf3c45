"""Source files of kernels and snippets: bounded reads inside their folder, headers, and template names."""

from __future__ import annotations

import codecs
import itertools
import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from webnorm.errors import NOT_TO_SHOW, SourceLocation, WebnormError, listing, sentence, shown
from webnorm.files import atomic
from webnorm.files.atomic import absolute, resolved

_TAG = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
# The tags that read another file, and its name if that is a literal.
_INCLUDE = re.compile(r"""\{%[-+]?\s*(?:include|import|from)\b\s*(?:"([^"]*)"|'([^']*)'|)""")
# The largest source file: ten times webnorm's whole library.
MOST_BYTES = 1 << 20
# Characters that no kernel's text may contain: invisible ones, and the two that mark a line's origin
# (kernels.source_map.markers).
FORBIDDEN = NOT_TO_SHOW
_OPEN, _CLOSE = "// /// webnorm", "// ///"
# Lines that are probably meant to open or close a header.
_ALMOST_OPEN = re.compile(r"\W*(?:webnorm|/{3}\s*web\w*)\W*", re.IGNORECASE)
_ALMOST_CLOSE = re.compile(r"[\s/]*//[\s/]*\W*")
_SUFFIX = ".wgsl"
# The identity of a file's content: device, inode, mtime, ctime (which tools that restore the mtime cannot
# set) and size; None without a file.
Stamp = tuple[int, int, int, int, int] | None
# For each kernel that `revision` was called for: the last result, and the files of its text.
_made_of: OrderedDict[Path, tuple[int, Mapping[str, Stamp]]] = OrderedDict()
_revisions = itertools.count()
_MOST_FOLLOWED = 256


class SourceUnreadable(Exception):
    """A file cannot be read: a short reason, and the line and column of the faulty character, if any."""

    def __init__(self, reason: str, line: int | None = None, column: int = 1) -> None:
        super().__init__(reason)
        self.reason, self.line, self.column = reason, line, column

    def named(self, file: str) -> tuple[str, SourceLocation | None]:
        """Return the begin of a message, and the place, for a file's display name."""
        if self.line is None:
            return file, None
        return f"{file}:{self.line}", SourceLocation(file, self.line, self.column, 1)


def is_wgsl(name: str) -> bool:
    """Return whether a name ends in .wgsl, in upper or lower case."""
    return name.casefold().endswith(_SUFFIX)


def wgsl_files(folder: Path) -> Iterator[Path]:
    """Yield the WGSL files of a folder by name; none if the folder is missing. May raise OSError."""
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if is_wgsl(path.name))


def files_instead(path: Path) -> str:
    """Return the WGSL files in a folder, or next to a missing file, as the end of an error."""
    try:
        found = [str(one) for one in wgsl_files(path if path.is_dir() else path.parent)]
    except OSError:
        found = []
    return listing(found) or "`webnorm new NAME` writes one"


def stamp(path: str) -> Stamp:
    """Return the stamp of the file at a path."""
    try:
        return _stamp(os.stat(path))
    except (OSError, ValueError):
        return None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read(path: str | Path, root: str | Path) -> tuple[str, str, Stamp]:
    """Return a file's text, its real path, and its stamp.

    Raises SourceUnreadable before reading if the file is outside of `root`, is not a regular file, or is too
    large; and after reading if it is not plain text.
    """
    try:
        real = os.path.realpath(path, strict=True)
        if not Path(real).is_relative_to(os.path.realpath(root)):
            raise SourceUnreadable(f"it is outside of {root}")
        with atomic.opened(real, MOST_BYTES, links=False) as file:
            status = os.fstat(file.fileno())
            data = atomic.read_whole(file, MOST_BYTES)
    except OSError as error:
        raise SourceUnreadable(error.strerror or type(error).__name__) from error
    except ValueError as error:
        raise SourceUnreadable("it is not a valid file name") from error
    return _decoded(data), real, _stamp(status)


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceUnreadable("not UTF-8 text but UTF-16; save it as UTF-8", 1)
    # Editors on Windows write a byte order mark, which has no meaning in UTF-8.
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise SourceUnreadable("not UTF-8 text", *_line_and_column(before)) from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    found = FORBIDDEN.search(text)
    if found:
        raise SourceUnreadable(
            f"it contains {code_point(found[0])}", *_line_and_column(text[: found.start()])
        )
    return text


def _line_and_column(before: str) -> tuple[int, int]:
    """Return the line and column, from 1, of the character after a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def code_point(character: str) -> str:
    """Return the name of a character that must not be displayed, for a message."""
    return f"the character U+{ord(character):04X}"


def has_header(source: str) -> bool:
    """Return whether a text has the line that opens a header."""
    return any(line.rstrip() == _OPEN for line in source.splitlines())


def split_header(source: str, path: Path) -> tuple[int, str]:
    """Return the number of the line that opens the header, and its TOML. Raises WebnormError without one."""
    lines = [line.rstrip() for line in source.splitlines()]
    if _OPEN not in lines:
        message = f"no header: expected a line {_OPEN!r} and after it a line {_CLOSE!r}"
        raise _no_header(path, lines, 0, message)
    start = lines.index(_OPEN)
    if _CLOSE not in lines[start + 1 :]:
        message = f"the header is not closed: expected a line {_CLOSE!r} after it"
        raise _no_header(path, lines, start, message)
    end = lines.index(_CLOSE, start + 1)
    toml = []
    for number, line in enumerate(lines[start + 1 : end], start + 2):
        if line != "//" and not line.startswith("// "):
            raise WebnormError(
                f"{path}:{number}: a header line must start with '// ', got {shown(line)}",
                SourceLocation(str(path), number, 1, len(line)),
            )
        toml.append(line[3:])
    return start + 1, "\n".join(toml)


def _no_header(path: Path, lines: Sequence[str], start: int, message: str) -> WebnormError:
    """Return the error for a missing line of a header; it names a line that is probably meant for it."""
    almost = _ALMOST_CLOSE if _OPEN in lines else _ALMOST_OPEN
    for number, line in enumerate(lines[start:], start + 1):
        if line not in (_OPEN, "//") and almost.fullmatch(line):
            place = SourceLocation(str(path), number, 1, len(line))
            return WebnormError(f"{path}:{number}: {message}, got {shown(line)}", place)
    return WebnormError(f"{path}:{start + 1}: {message}", SourceLocation(str(path), start + 1))


def without_header(source: str, path: Path) -> str:
    """Return the template's body with blank lines for the header, so that line numbers stay the same."""
    start, toml = split_header(source, path)
    lines = source.splitlines()
    count = len(toml.splitlines()) + 2
    lines[start - 1 : start - 1 + count] = [""] * count
    return "\n".join(lines) + "\n"


@cache
def wgsl_root() -> Path:
    """Return the folder of webnorm's own kernels."""
    return atomic.shipped("wgsl")


class _Words(NamedTuple):
    """The words in a template's tags and text, and the names it includes (None for a computed name)."""

    tags: frozenset[str]
    text: frozenset[str]
    included: frozenset[str | None]


class TemplateNames(NamedTuple):
    """The words in all tags and all text of a kernel and its snippets.

    `whole` is False if a snippet was not found, or its name is only known in rendering.
    """

    tags: frozenset[str]
    text: frozenset[str]
    whole: bool


def template_names(body: str, root: Path) -> TemplateNames:
    """Return the names that a kernel's template looks up, with its snippets from `root` and webnorm's."""
    tags, text, whole = set[str](), set[str](), True
    waiting, seen = [_words(body)], set[str | None]()
    while waiting:
        words = waiting.pop()
        tags |= words.tags
        text |= words.text
        for name in words.included - seen:
            seen.add(name)
            snippet = None if name is None else _snippet(name, root)
            if snippet is None:
                whole = False
            else:
                waiting.append(snippet)
    return TemplateNames(frozenset(tags), frozenset(text), whole)


def _snippet(name: str, root: Path) -> _Words | None:
    for folder in (root, wgsl_root()):
        path = str(folder / name)
        if (at := stamp(path)) is not None:
            return _words_of(path, str(folder), at)
    return None


@lru_cache(maxsize=256)
def _words_of(path: str, folder: str, _: Stamp) -> _Words | None:
    try:
        return _words(read(path, folder)[0])
    except SourceUnreadable:
        return None


def _words(template: str) -> _Words:
    text = _COMMENT.sub("", template)
    included = frozenset(found[1] or found[2] for found in _INCLUDE.finditer(text))
    tags = frozenset(word for tag in _TAG.findall(text) for word in _WORD.findall(tag))
    return _Words(tags, frozenset(_WORD.findall(_TAG.sub(" ", text))), included)


def revision(path: Path) -> int:
    """Return a number that changes when a kernel's file or one of its snippets has changed since rendering.

    It checks the stamps of all paths that were searched, and reads no file.
    """
    real = resolved(path)
    number, files = _made_of.get(real, (None, {}))
    if number is None or any(stamp(file) != known for file, known in files.items()):
        number = next(_revisions)
        _made_of[real] = (number, {})
        while len(_made_of) > _MOST_FOLLOWED:
            _made_of.popitem(last=False)
    return number


def note_files(path: Path, made_of: Mapping[str, Stamp]) -> None:
    """Record the files of a kernel's text for `revision`."""
    if path in _made_of:
        number, files = _made_of[path]
        if any(made_of.get(file, known) != known for file, known in files.items()):
            number = next(_revisions)
        _made_of[path] = (number, {**files, **made_of})


def identity(path: Path) -> tuple[str, int]:
    """Return the absolute path of a kernel's file, with its links, and its revision.

    Raises WebnormError if the file does not exist.
    """
    try:
        place = absolute(path)
        place.stat()
        return str(place), revision(place)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise WebnormError(f"{sentence(str(path))}: cannot read the kernel: {why}") from error
