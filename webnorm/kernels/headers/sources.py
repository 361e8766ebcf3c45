"""Files of kernels and snippets: read whole, within bounds and inside their folder; headers taken off; the
names that their templates look up.
"""

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

from webnorm.errors import NOT_TO_SHOW, SourceLocation, WebnormError, sentence, shown
from webnorm.files import atomic
from webnorm.files.atomic import absolute, resolved

_TAG = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
# What a tag reads another file with, and its name where that is a text.
_INCLUDE = re.compile(r"""\{%[-+]?\s*(?:include|import|from)\b\s*(?:"([^"]*)"|'([^']*)'|)""")
# Ten times webnorm's whole library.
MOST_BYTES = 1 << 20
# What no kernel's text may hold: what nobody would see, and the two characters that mark where a line came
# from (kernels.rendering.templates).
FORBIDDEN = NOT_TO_SHOW
_OPEN, _CLOSE = "// /// webnorm", "// ///"
# A line that its author may have meant for one that opens or closes a header.
_ALMOST_OPEN = re.compile(r"\W*(?:webnorm|/{3}\s*web\w*)\W*", re.IGNORECASE)
_ALMOST_CLOSE = re.compile(r"[\s/]*//[\s/]*\W*")
_SUFFIX = ".wgsl"
# The identity of a file's content: device, inode, time of its last write, time of its last change of any kind
# (tools that restore the first cannot set this one), size; None without a file.
Stamp = tuple[int, int, int, int, int] | None
# For the kernels that `revision` was asked about: what it said last, and the files that the text was made of.
_made_of: OrderedDict[Path, tuple[int, Mapping[str, Stamp]]] = OrderedDict()
_revisions = itertools.count()
_MOST_FOLLOWED = 256


class SourceUnreadable(Exception):
    """Why a file is not read, in a few words, and the line and column of the character that is to blame where
    there is one.
    """

    def __init__(self, reason: str, line: int | None = None, column: int = 1) -> None:
        super().__init__(reason)
        self.reason, self.line, self.column = reason, line, column

    def named(self, file: str) -> tuple[str, SourceLocation | None]:
        """What messages begin with, and the place, for a file as they name it."""
        if self.line is None:
            return file, None
        return f"{file}:{self.line}", SourceLocation(file, self.line, self.column, 1)


def is_wgsl(name: str) -> bool:
    """Whether a name is that of a WGSL file: the suffix may be in upper case."""
    return name.casefold().endswith(_SUFFIX)


def wgsl_files(folder: Path) -> Iterator[Path]:
    """The WGSL files of a folder by name; none where there is no such folder. May raise OSError."""
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if is_wgsl(path.name))


def stamp(path: str) -> Stamp:
    """The stamp of what is at a path."""
    try:
        return _stamp(os.stat(path))
    except (OSError, ValueError):
        return None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read(path: str | Path, root: str | Path) -> tuple[str, str, Stamp]:
    """A file's text, where it lies without links, and its stamp.

    Raises SourceUnreadable for what lies outside of `root`, is no plain file or is too large, before any of
    it is read, and for what is no plain text.
    """
    try:
        real = os.path.realpath(path, strict=True)
        if not Path(real).is_relative_to(os.path.realpath(root)):
            raise SourceUnreadable(f"it lies outside of {root}")
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
    # Editors of Windows begin a file with a byte order mark, which says nothing in UTF-8.
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise SourceUnreadable("not UTF-8 text", *_line_and_column(before)) from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    found = FORBIDDEN.search(text)
    if found:
        raise SourceUnreadable(f"it holds {code_point(found[0])}", *_line_and_column(text[: found.start()]))
    return text


def _line_and_column(before: str) -> tuple[int, int]:
    """Those of what stands behind a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def code_point(character: str) -> str:
    """A character that must not be shown, as a message names it."""
    return f"the character U+{ord(character):04X}"


def has_header(source: str) -> bool:
    """Whether a text has the line that opens a header."""
    return any(line.rstrip() == _OPEN for line in source.splitlines())


def split_header(source: str, path: Path) -> tuple[int, str]:
    """The header's TOML and the number of the line that opens it; raises WebnormError without one."""
    lines = [line.rstrip() for line in source.splitlines()]
    if _OPEN not in lines:
        message = f"no header: expected a line {_OPEN!r} and after it a line {_CLOSE!r}"
        raise _no_header(path, lines, 0, message)
    start = lines.index(_OPEN)
    if _CLOSE not in lines[start + 1 :]:
        message = f"the header is not closed: expected a line {_CLOSE!r} behind it"
        raise _no_header(path, lines, start, message)
    end = lines.index(_CLOSE, start + 1)
    toml = []
    for number, line in enumerate(lines[start + 1 : end], start + 2):
        if line != "//" and not line.startswith("// "):
            raise WebnormError(
                f"{path}:{number}: a header line starts with '// ', got {shown(line)}",
                SourceLocation(str(path), number, 1, len(line)),
            )
        toml.append(line[3:])
    return start + 1, "\n".join(toml)


def _no_header(path: Path, lines: Sequence[str], start: int, message: str) -> WebnormError:
    """The error for a header's line that is missing; it names the line that may be meant for it."""
    almost = _ALMOST_CLOSE if _OPEN in lines else _ALMOST_OPEN
    for number, line in enumerate(lines[start:], start + 1):
        if line not in (_OPEN, "//") and almost.fullmatch(line):
            place = SourceLocation(str(path), number, 1, len(line))
            return WebnormError(f"{path}:{number}: {message}, got {shown(line)}", place)
    return WebnormError(f"{path}:{start + 1}: {message}", SourceLocation(str(path), start + 1))


def without_header(source: str, path: Path) -> str:
    """The template's body with the header's lines left blank, so that line numbers stay true."""
    start, toml = split_header(source, path)
    lines = source.splitlines()
    count = len(toml.splitlines()) + 2
    lines[start - 1 : start - 1 + count] = [""] * count
    return "\n".join(lines) + "\n"


@cache
def wgsl_root() -> Path:
    """The folder of the kernels that come with webnorm."""
    return atomic.shipped("wgsl")


class _Words(NamedTuple):
    """The words of a template's tags and of its text, and what it includes, None for what it works out."""

    tags: frozenset[str]
    text: frozenset[str]
    included: frozenset[str | None]


class TemplateNames(NamedTuple):
    """The words of all tags that a kernel is rendered with, and of all text. It is not `whole` where some of
    it lies elsewhere, or only rendering can know.
    """

    tags: frozenset[str]
    text: frozenset[str]
    whole: bool


def looked_up(body: str, root: Path) -> TemplateNames:
    """What a kernel's template, the snippets of its folder `root` and webnorm's look up."""
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
    """A number for what a kernel's file and its snippets hold, which changes when one of them has changed
    since it was last rendered.

    It costs a look at each place that a snippet was looked for in, and none at what the files hold.
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
    """Have `revision` know what a kernel's text was made of."""
    if path in _made_of:
        number, files = _made_of[path]
        if any(made_of.get(file, known) != known for file, known in files.items()):
            number = next(_revisions)
        _made_of[path] = (number, {**files, **made_of})


def identity(path: Path) -> tuple[str, int]:
    """Where a kernel's file lies, links as they are, and its revision; WebnormError where there is none."""
    try:
        place = absolute(path)
        place.stat()
        return str(place), revision(place)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise WebnormError(f"{sentence(str(path))}: cannot read the kernel: {why}") from error
