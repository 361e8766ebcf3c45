"""Templates to text: Jinja in a sandbox, includes that stay in their folders, lines that know their origin.

What stands here imports little: it also runs in the child process of webnorm.kernels.confined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

from jinja2 import (
    BaseLoader,
    Environment,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
    UndefinedError,
)
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.sandbox import SandboxedEnvironment

from webnorm.errors import WebnormError, sentence
from webnorm.kernels import sources
from webnorm.kernels.bounds import too_deep, workgroup_bytes
from webnorm.kernels.expression import Tree
from webnorm.kernels.plain import plain

# Of a rendered text, in characters and lines: forty times webnorm's longest.
MOST_TEXT, MOST_LINES = 4 << 20, 100_000
# With the markers.
_MOST_MARKED = 4 * MOST_TEXT
_MOST_NAME = 255
# A marker stands before each line of template text and is taken out again after rendering. The two
# characters are noncharacters of Unicode: no file of a kernel holds them.
_MARK_OPEN, _MARK_CLOSE = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"{_MARK_OPEN}([^{_MARK_OPEN}{_MARK_CLOSE}]*):([0-9]{{1,7}}){_MARK_CLOSE}")
# The marker that a line's first visible character stands behind.
_FIRST_TEXT = re.compile(_MARK.pattern + f"\\s*(?=[^\\s{_MARK_OPEN}])")


@dataclass(frozen=True)
class Binding:
    """One storage binding of a shader, in group 0; binding 0 is the uniform `params`.

    `width` counts elements of a row, or of the whole where it is not `per_row`; `wide` tells that these are
    the problem's columns. `itemsize` are the bytes of an element. `tensors` names what lies in it, one behind
    the other, each from a multiple of 16 bytes on; nothing for a scratch buffer, whose `records` have `width`
    floats each.
    """

    index: int
    name: str
    access: Literal["read", "read_write"]
    per_row: bool
    dtype: str
    itemsize: int
    width: int
    wide: bool = False
    tensors: tuple[str, ...] = ()
    records: Tree | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, or of each tensor where it has no rows."""
        return self.width * self.itemsize

    @property
    def stride(self) -> int:
        """Bytes from one of its tensors to the next."""
        return -(-self.row_bytes // 16) * 16


@dataclass(frozen=True)
class View:
    """A tensor as a template sees it: in which buffer, from which byte on."""

    name: str
    buffer: str
    base: int
    access: str
    per_row: bool
    dtype: str
    wide: bool


@dataclass(frozen=True)
class RenderRequest:
    """What to render: a kernel's file, with the names that its template sees.

    It lies in one of the folders `roots`, in which includes are looked for, in order. `own` is the folder of
    webnorm's kernels, whose files messages name from its name on. No path goes through a link.
    """

    kernel: str
    roots: tuple[str, ...]
    own: str
    context: Mapping[str, Any]
    entry_points: tuple[str, ...]


@dataclass(frozen=True)
class Rendering:
    """A text, and for each of its lines the file and line that it came from.

    `workgroup_bytes` is the workgroup memory of its entry points; `files` are the places that were looked at
    for it, with the stamp of what was there.
    """

    text: str
    origins: tuple[tuple[str, int], ...]
    workgroup_bytes: int
    files: Mapping[str, sources.Stamp]


class _LineMarks(Extension):
    """Puts a marker before each line of template text, and each piece of one, as the lexer hands it over."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for token in stream:
            if token.type == "data":
                marked = "\n".join(
                    f"{_MARK_OPEN}{stream.name}:{token.lineno + offset}{_MARK_CLOSE}{text}"
                    for offset, text in enumerate(token.value.split("\n"))
                )
                token = Token(token.lineno, "data", marked)
            yield token


class _Refused(Exception):
    """An include that is refused: unlike one that is not found, none that a template can ignore."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(f"cannot include {sentence(repr(name), 80)}: {reason}")


class OutOfMemory(WebnormError):
    """Rendering took more memory than there is for it."""


class TemplateEnvironment(SandboxedEnvironment):
    """Jinja for kernels: what one template asks for by name stays in the folders."""

    def join_path(self, template: str, parent: str) -> str:
        """The name of what a template includes; only the kernel itself has an absolute one."""
        if not isinstance(template, str):
            raise _Refused(template, "expected the name of a file")
        if len(template) > _MOST_NAME:
            raise _Refused(
                template, f"its name has {len(template)} characters; expected at most {_MOST_NAME}"
            )
        path = PurePosixPath(template.replace("\\", "/"))
        if path.is_absolute() or PureWindowsPath(template).anchor or ".." in path.parts:
            raise _Refused(template, "it lies outside of the kernel's folders")
        if sources.FORBIDDEN.search(template):
            raise _Refused(template, "it is no name of a file")
        return template


class _Loader(BaseLoader):
    """Finds snippets in the user's folders first, then in webnorm's, and takes headers off.

    `looked_at` has the stamp of every place that it has looked at. Of what it has read, `shown` is the file
    as messages name it, by template and by file, and `blank` the numbers of its empty lines.
    """

    def __init__(self, roots: Sequence[str], own: str) -> None:
        self.roots, self.own = roots, own
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.looked_at: dict[str, sources.Stamp] = {}
        self.shown: dict[str, str] = {"": ""}
        self.blank: dict[str, frozenset[int]] = {"": frozenset()}

    @property
    def stale(self) -> bool:
        """Whether anything has changed since it was looked at."""
        return any(sources.stamp(path) != known for path, known in list(self.looked_at.items()))

    def find(self, template: str) -> tuple[str, str]:
        """The file of a template, and the folder that it has to lie in; raises TemplateNotFound."""
        path = Path(template)
        if path.is_absolute():
            return template, next((root for root in self.roots if path.is_relative_to(root)), self.own)
        for root in self.roots:
            candidate = str(Path(root, template))
            self.looked_at[candidate] = sources.stamp(candidate)
            if self.looked_at[candidate] is not None:
                return candidate, root
        raise TemplateNotFound(template)

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, None]:
        path, root = self.find(template)
        try:
            source, real, read_at = sources.read(path, root)
        except sources.Unreadable as error:
            shown = display_path(path, self.own)
            if error.line is not None:
                raise WebnormError(f"{shown}:{error.line}: {error.reason}") from error
            if path == template:
                raise WebnormError(f"{shown}: cannot read the kernel: {error.reason}") from error
            raise _Refused(template, error.reason) from error
        self.looked_at[path] = read_at
        if path == template:
            source = sources.without_header(source, Path(path))
        lines = enumerate(source.splitlines(), 1)
        self.shown[template] = self.shown[real] = display_path(real, self.own)
        self.blank[template] = frozenset(number for number, line in lines if not line.strip())
        return source, real, None


@lru_cache(maxsize=16)
def _environment(roots: tuple[str, ...], own: str) -> tuple[Environment, _Loader]:
    """Templates are parsed once for each search path, and again when a file has changed."""
    loader = _Loader(roots, own)
    environment = TemplateEnvironment(
        loader=loader,
        undefined=StrictUndefined,
        extensions=[_LineMarks],
        keep_trailing_newline=True,
        auto_reload=False,
    )
    return environment, loader


def render(request: RenderRequest) -> Rendering:
    """Render in this process; raises WebnormError with the template's file and line."""
    environment, loader = _environment(tuple(dict.fromkeys(request.roots)), request.own)
    if loader.stale:
        loader.forget()
        assert environment.cache is not None
        environment.cache.clear()
    place = display_path(request.kernel, request.own)

    def placed(error: BaseException, message: str) -> WebnormError:
        return WebnormError(f"{_template_line(error, request, loader)}: {sentence(message)}")

    try:
        text, origins = _checked_text(request, environment, loader)
        used = workgroup_bytes(text, request.entry_points)
    except WebnormError:
        raise
    except TemplateSyntaxError as error:
        file = loader.shown.get(error.filename or place, place)
        raise WebnormError(f"{file}:{error.lineno}: {sentence(str(error.message))}") from error
    except TemplateNotFound as error:
        name = sentence(repr(error.name), 80)
        raise placed(error, f"includes {name}, which is in none of its folders") from error
    except SyntaxError as error:
        # What Jinja made of the template is more than Python takes.
        raise placed(error, str(error.msg)) from error
    except MemoryError as error:
        raise OutOfMemory(
            f"{_template_line(error, request, loader)}: rendering takes too much memory"
        ) from error
    except UndefinedError as error:
        name, *_ = re.findall(r"^'(\w+)' is undefined$", str(error)) or [""]
        why = "; its macro was imported without `with context`" if name in request.context else ""
        raise placed(error, f"{error}{why}") from error
    except (TemplateError, _Refused, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise placed(error, str(error) or type(error).__name__) from error
    except Exception as error:
        raise placed(error, f"{type(error).__name__}: {error}") from error
    return Rendering(text, tuple(origins), used, dict(loader.looked_at))


def _checked_text(
    request: RenderRequest, environment: Environment, loader: _Loader
) -> tuple[str, list[tuple[str, int]]]:
    """The text and where its lines came from; raises WebnormError for what is too much for a compiler."""
    place = display_path(request.kernel, request.own)
    marked = _at_most(_MOST_MARKED, environment.get_template(request.kernel).generate(request.context))
    text, origins = ("", []) if marked is None else _text_of(marked, loader, request.own)
    if marked is None or len(text) > MOST_TEXT or len(origins) > MOST_LINES:
        size = "" if marked is None else f": {len(text)} and {len(origins)}"
        raise WebnormError(
            f"{place}: renders to more than {MOST_TEXT} characters or {MOST_LINES} lines{size}"
        )
    found = sources.FORBIDDEN.search(text)
    if found:
        file, line = origins[text.count("\n", 0, found.start())]
        raise WebnormError(f"{file or place}:{line}: the rendered text holds {sources.code_point(found[0])}")
    found_deep = too_deep(text)
    if found_deep:
        line, what = found_deep
        file, number = origins[line]
        raise WebnormError(f"{file or place}:{number}: {what}")
    return text, origins


@lru_cache(maxsize=1)
def _snippets(own: str) -> frozenset[str]:
    """The names of webnorm's snippets."""
    return frozenset(path.name for path in (Path(own) / "lib").glob("*.wgsl"))


def _text_of(marked: str, loader: _Loader, own: str) -> tuple[str, list[tuple[str, int]]]:
    """The text, plain in what webnorm's snippets gave, or a user's in their places."""
    snippets = _snippets(own)

    def is_library(file: str) -> bool:
        path = Path(file)
        return path.parent.name == "lib" and path.name in snippets

    lines, origins = plain(*_strip_marks(marked, loader), is_library)
    return "\n".join(lines) + "\n", origins


def _at_most(most: int, pieces: Iterable[str]) -> str | None:
    """The pieces as one, None where they are longer."""
    kept, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            return None
        kept.append(piece)
    return "".join(kept)


def _template_line(error: BaseException, request: RenderRequest, loader: _Loader) -> str:
    """The template's file and line that an error came through: Jinja puts them in the traceback."""
    place = display_path(request.kernel, request.own)
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file in loader.shown:
            place = f"{loader.shown[file]}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place


def display_path(file: str, own: str) -> str:
    """A template's file as messages name it: from `wgsl/` on for webnorm's own."""
    path, root = Path(file), Path(own)
    if not path.is_absolute():
        return str(Path(root.name) / path)
    return str(path.relative_to(root.parent)) if path.is_relative_to(root) else str(path)


def _strip_marks(marked: str, loader: _Loader) -> tuple[list[str], list[tuple[str, int]]]:
    """Take the markers out; leave out lines that held nothing but template tags.

    A filter may have changed what a marker says: what names no file is passed over.
    """
    lines: list[str] = []
    origins: list[tuple[str, int]] = []
    for line in marked.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        match = _FIRST_TEXT.search(line) or _MARK.search(line)
        text = _MARK.sub("", line).rstrip()
        known = match is not None and match[1] in loader.blank
        origin = (match[1], int(match[2])) if match and known else (origins[-1] if origins else ("", 0))
        if not text:
            file, number = origin
            if not lines or not lines[-1] or number not in loader.blank[file]:
                continue
        lines.append(text)
        origins.append(origin)
    while lines and not lines[-1]:
        lines.pop()
        origins.pop()
    shown = [(loader.shown[file], number) for file, number in origins]
    return lines, shown
