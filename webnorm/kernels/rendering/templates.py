"""Templates to text: Jinja in a sandbox, includes that stay in their folders, lines that know their origin.

What stands here imports little: it also runs in the child process of webnorm.kernels.rendering.sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any, Literal, cast

import jinja2
from jinja2 import (
    BaseLoader,
    Environment,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
    UndefinedError,
    nodes,
)
from jinja2.bccache import Bucket, BytecodeCache
from jinja2.compiler import CodeGenerator, Frame
from jinja2.lexer import Lexer
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from webnorm import signals
from webnorm.errors import SourceLocation, WebnormError, sentence
from webnorm.files import user_cache
from webnorm.kernels.headers import sources
from webnorm.kernels.rendering.includes import IncludeRefused, check_name, note_include
from webnorm.kernels.rendering.snippets import strip_unused
from webnorm.kernels.rendering.tracing import tag
from webnorm.kernels.source_map.markers import (
    LineSegment,
    MarkingLexer,
    UnmarkedLine,
    source_location,
    without_markers,
)
from webnorm.kernels.source_map.template_tags import find_tag, not_exported, tag_location
from webnorm.kernels.wgsl.tokens import (
    UnterminatedComment,
    nesting_too_deep,
    without_comments,
    workgroup_bytes,
)
from webnorm.op.expression import Tree

_FOLDER = "templates"
_OF_JINJA = ("lexer", "parser", "nodes", "visitor", "idtracking", "optimizer", "compiler")
# What makes code of a template's text, Jinja's part and webnorm's. (To ask for the version of an installed
# package takes 10 ms.)
_MAKERS = (
    *(Path(jinja2.__file__).with_name(f"{name}.py") for name in _OF_JINJA),
    *(Path(__file__).parents[1] / name for name in ("source_map/markers.py", "rendering/templates.py")),
)
# Of a rendered text, in characters and lines: forty times webnorm's longest.
MOST_TEXT, MOST_LINES = 4 << 20, 100_000
# How much longer a text may be with its markers.
_MARKED = 4
# What templates look up is noted under a name that none of them can have.
_NOTED = ""


class TemplateCodeGenerator(CodeGenerator):
    """Writes a template's code; Jinja's own writes a template's name between quotes as it is."""

    def visit_CondExpr(self, node: nodes.CondExpr, frame: Frame) -> None:
        """Write an inline `if`, whose error names the line and not the template: a folder may have a quote in
        its name.
        """
        name, self.name = self.name, None
        try:
            super().visit_CondExpr(node, frame)
        finally:
            self.name = name


class TemplateBytecodeCache(BytecodeCache):
    """webnorm's own templates as Jinja compiled them, kept for the next process: a file for each template,
    which a newer text of it takes over.
    """

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """The name of a template's file; Jinja's own takes only paths that UTF-8 has."""
        return blake2b(os.fsencode(f"{name}|{filename}"), digest_size=20).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Have the bucket hold what is kept of its template, if that is there and sound."""
        with suppress(OSError):
            data = user_cache.load(_FOLDER, _key_of(bucket))
            if data is not None:
                bucket.bytecode_from_string(data)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what the bucket holds, if that can be done."""
        with suppress(OSError):
            user_cache.store(_FOLDER, _key_of(bucket), bucket.bytecode_to_string())


class ReadOnlyBytecodeCache(TemplateBytecodeCache):
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


def _key_of(bucket: Bucket) -> bytes:
    """OSError where the makers' files are not there."""
    return bucket.key.encode() + _made_by()


@cache
def _made_by() -> bytes:
    """What identifies the Python, Jinja and webnorm that made code, a working tree's changes included."""
    made = blake2b(MAGIC_NUMBER)
    for path in _MAKERS:
        made.update(path.read_bytes())
    return made.digest()


@dataclass(frozen=True)
class StorageBinding:
    """One storage binding of a shader, in group 0; binding 0 is the uniform `params`.

    `width` counts elements of one element of the batch, or of the whole where it is not `batched`; `wide`
    tells that these depend on the problem's sizes. `itemsize` are the bytes of an element. `tensors` names
    what lies in it, one behind the other, each from a multiple of 16 bytes on; nothing for a scratch buffer,
    whose `records` have `width` floats each.
    """

    index: int
    name: str
    access: Literal["read", "read_write"]
    batched: bool
    dtype: str
    itemsize: int
    width: int
    wide: bool = False
    tensors: tuple[str, ...] = ()
    records: Tree | None = None

    @property
    def inner_bytes(self) -> int:
        """Bytes of one element of the batch, or of each tensor where it is not batched."""
        return self.width * self.itemsize

    @property
    def stride(self) -> int:
        """Bytes from one of its tensors to the next."""
        return -(-self.inner_bytes // 16) * 16


@dataclass(frozen=True)
class TensorView:
    """A tensor as a template sees it: in which buffer, from which byte on, and how many elements belong to an
    element of the batch, or to all of it where it is not batched.
    """

    name: str
    buffer: str
    base: int
    access: str
    batched: bool
    dtype: str
    wide: bool
    elements: int


@dataclass(frozen=True)
class RenderRequest:
    """What to render: a kernel's file, with the names that its template sees.

    It lies in one of the folders `roots`, in which includes are looked for, in order. `own` is the folder of
    webnorm's kernels, whose files messages name from its name on. No path goes through a link. `runs` asks
    for where each character came from, too.
    """

    kernel: str
    roots: tuple[str, ...]
    own: str
    context: Mapping[str, Any]
    entry_points: tuple[str, ...]
    runs: bool = False


@dataclass(frozen=True)
class Rendering:
    """A text, and for each of its lines the file and line that it came from; `runs`, where they were asked
    for, are what of it came from where, and `callers` for each line of webnorm's snippets the tag of another
    template that had it made.

    `workgroup_bytes` is the workgroup memory of its entry points; `files` are the places that were looked at
    for it, with the stamp of what was there. `names` are those that its templates looked up: where they have
    the same values, the text is the same.
    """

    text: str
    origins: tuple[tuple[str, int], ...]
    workgroup_bytes: int
    files: Mapping[str, sources.Stamp]
    names: frozenset[str]
    runs: tuple[tuple[LineSegment, ...], ...] = ()
    callers: tuple[SourceLocation | None, ...] = ()


class OutOfMemory(WebnormError):
    """Rendering took more memory than there is for it."""


class _Noting(Context):
    """What a template knows by name; notes which names it looks up."""

    def resolve_or_missing(self, key: str) -> Any:
        """The value of a name."""
        if (noted := self.parent.get(_NOTED)) is not None:
            noted.add(key)
        return super().resolve_or_missing(key)


class TemplateEnvironment(SandboxedEnvironment):
    """Jinja for kernels: what one template asks for by name stays in the folders, and text is marked."""

    context_class = _Noting
    code_generator_class = TemplateCodeGenerator

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.includes: dict[str, set[str]] = {}

    @cached_property
    def lexer(self) -> Lexer:
        """What finds text and tags."""
        return MarkingLexer(self)

    def join_path(self, template: str, parent: str) -> str:
        """The name of what a template includes; only the kernel itself has an absolute one."""
        if not isinstance(template, str):
            raise IncludeRefused(template, "expected the name of a file")
        check_name(template)
        note_include(self.includes, parent, template)
        return template


class _Loader(BaseLoader):
    """Finds snippets in the user's folders first, then in webnorm's, and takes headers off.

    `looked_at` has the stamp of every place that it has looked at. Of what it has read, `shown` is the file
    as messages name it, and `lines` its content, by template and by file; `owned` are webnorm's own.
    """

    def __init__(self, roots: Sequence[str], own: str) -> None:
        self.roots, self.own = roots, own
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.looked_at: dict[str, sources.Stamp] = {}
        self.shown: dict[str, str] = {"": ""}
        self.lines: dict[str, Sequence[str]] = {"": ()}
        self.owned = set[str]()
        self._kernels, self._outdated = set[str](), set[str]()

    def refresh(self) -> bool:
        """Have kernels that have changed read anew; False where a snippet has, or another takes its place.

        A kernel is nobody's snippet: no other template holds anything of it.
        """
        changed = {path for path, known in list(self.looked_at.items()) if sources.stamp(path) != known}
        self._outdated |= changed
        return changed <= self._kernels

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

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        path, root = self.find(template)
        try:
            source, real, read_at = sources.read(path, root)
        except sources.SourceUnreadable as error:
            named, place = error.named(display_path(path, self.own))
            if place is not None:
                raise WebnormError(f"{named}: {error.reason}", place) from error
            if path == template:
                raise WebnormError(f"{named}: cannot read the kernel: {error.reason}") from error
            raise IncludeRefused(template, error.reason) from error
        self.looked_at[path] = read_at
        self._outdated.discard(template)
        if path == template:
            self._kernels.add(path)
            source = sources.without_header(source, Path(path))
        self.shown[template] = self.shown[real] = display_path(real, self.own)
        self.lines[template] = self.lines[real] = source.splitlines()
        if Path(real).is_relative_to(self.own):
            self.owned |= {template, real}
        return source, real, lambda: template not in self._outdated


@lru_cache(maxsize=16)
def _environment(roots: tuple[str, ...], own: str) -> tuple[TemplateEnvironment, _Loader]:
    """Templates are parsed once for each search path, and again when a file has changed."""
    loader = _Loader(roots, own)
    environment = TemplateEnvironment(
        loader=loader,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=True,
        bytecode_cache=TemplateBytecodeCache() if roots == (own,) else ReadOnlyBytecodeCache(own),
    )
    return environment, loader


@signals.holding
def render(request: RenderRequest, most_text: int = MOST_TEXT) -> Rendering:
    """Render in this process, at most so many characters; WebnormError has the template's file and line."""
    environment, loader = _environment(tuple(dict.fromkeys(request.roots)), request.own)
    if not loader.refresh():
        loader.forget()
        cast(Any, environment.cache).clear()
    environment.includes.clear()
    # What `trace` gives depends on that.
    noted = {"tracing"}
    try:
        text, lines = _checked_text(request, environment, loader, most_text, noted)
        used = workgroup_bytes(text, request.entry_points)
        names = frozenset(noted.intersection(request.context))
        origins = tuple((loader.shown[one.origin[0]], one.origin[1]) for one in lines)
        placed = lines if request.runs else []
        runs = tuple(_shown_runs(one, loader) for one in placed)
        callers = tuple(
            None if end is None else tag_location(loader.lines[end[0]], loader.shown[end[0]], *end[1:])
            for end in (one.caller for one in placed)
        )
    except WebnormError:
        raise
    except Exception as error:
        signals.let_through(error)
        raise _mistake(error, request, loader) from error
    return Rendering(text, origins, used, dict(loader.looked_at), names, runs, callers)


def _mistake(error: Exception, request: RenderRequest, loader: _Loader) -> WebnormError:
    """What went wrong in rendering as a user is told it, with its place."""
    file, line = _template_line(error, request, loader)
    kind = WebnormError
    match error:
        case TemplateSyntaxError():
            file, line, message = error.filename or file, error.lineno, str(error.message)
        case TemplateNotFound():
            message = f"includes {sentence(repr(error.name), 80)}, which is in none of its folders"
        case SyntaxError():
            # What Jinja made of the template is more than Python takes.
            message = str(error.msg)
        case MemoryError():
            kind, message = OutOfMemory, "rendering takes too much memory"
        case UndefinedError() if found := not_exported(str(error), loader.lines):
            file, line, message = found
        case UndefinedError():
            name, *_ = re.findall(r"^'(\w+)' is undefined$", str(error)) or [""]
            if name in request.context:
                why = "; its macro was imported without `with context`"
            elif name and file.rpartition("/")[0].endswith("lib"):
                why = "; the library reads it: define it in [tune] or [derive] of the kernel's header"
            else:
                why = ""
            message = f"{error}{why}"
        case (
            TemplateError()
            | IncludeRefused()
            | TypeError()
            | ValueError()
            | ArithmeticError()
            | RecursionError()
        ):
            message = str(error) or type(error).__name__
        case _:
            message = f"{type(error).__name__}: {error}"
    shown = loader.shown.get(file) or display_path(request.kernel, request.own)
    if line is None:
        return kind(f"{shown}: {sentence(message)}")
    column, length = find_tag(loader.lines.get(file, ()), line, message)
    return kind(f"{shown}:{line}: {sentence(message)}", SourceLocation(shown, line, column, length))


def _checked_text(
    request: RenderRequest, environment: Environment, loader: _Loader, most_text: int, noted: set[str]
) -> tuple[str, list[UnmarkedLine]]:
    """The text and its lines, with their runs if these were asked for; the names that were looked up go to
    `noted`. Raises WebnormError for what is too much for a compiler.
    """
    place = display_path(request.kernel, request.own)
    context = {**request.context, "trace": tag(request.context), _NOTED: noted}
    marked = _at_most(_MARKED * most_text, environment.get_template(request.kernel).generate(context))
    lines = [] if marked is None else _lines_of(marked, loader, request.runs)
    text = "\n".join(one.text for one in lines) + "\n"
    if marked is None or len(text) > most_text or len(lines) > MOST_LINES:
        size = "" if marked is None else f": {len(text)} and {len(lines)}"
        raise WebnormError(
            f"{place}: renders to more than {most_text} characters or {MOST_LINES} lines{size}"
        )
    wrong = _wrong(text)
    if wrong is None:
        return text, lines
    at, column, what = wrong
    one = _lines_of(marked, loader, runs=True)[at]
    file, line = loader.shown[one.origin[0]], one.origin[1]
    found = source_location(_shown_runs(one, loader), column) or SourceLocation(file or place, line)
    raise WebnormError(f"{file or place}:{line}: {what}", found)


def _wrong(text: str) -> tuple[int, int, str] | None:
    """The line and column, from 0, of what no compiler should be given, and what it is."""
    if found := sources.FORBIDDEN.search(text):
        before = text[: found.start()]
        what = f"the rendered text holds {sources.code_point(found[0])}"
        return before.count("\n"), len(before) - before.rfind("\n") - 1, what
    try:
        code = without_comments(text)
    except UnterminatedComment as error:
        before = text[: error.start]
        return before.count("\n"), len(before) - before.rfind("\n") - 1, str(error)
    if deep := nesting_too_deep(code):
        at, what = deep
        line = text.split("\n")[at]
        return at, len(line) - len(line.lstrip()), what
    return None


def _lines_of(marked: str, loader: _Loader, runs: bool) -> list[UnmarkedLine]:
    """The lines, plain in what webnorm's own files gave."""
    snippets = {name for name in loader.owned if not Path(name).is_absolute()} if runs else None
    lines = without_markers(marked, loader.lines, snippets)
    _, kept = strip_unused([one.text for one in lines], [one.makers <= loader.owned for one in lines])
    return [lines[at] for at in kept]


def _shown_runs(one: UnmarkedLine, loader: _Loader) -> tuple[LineSegment, ...]:
    return tuple(run._replace(file=loader.shown[run.file]) for run in one.runs)


def _at_most(most: int, pieces: Iterable[str]) -> str | None:
    """The pieces as one, None where they are longer."""
    kept, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            return None
        kept.append(piece)
    return "".join(kept)


def _template_line(error: BaseException, request: RenderRequest, loader: _Loader) -> tuple[str, int | None]:
    """The template's file and line that an error came through: Jinja puts them in the traceback."""
    place: tuple[str, int | None] = (request.kernel, None)
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file in loader.shown:
            place = (file, frame.tb_lineno)
        frame = frame.tb_next
    return place


def display_path(file: str, own: str) -> str:
    """A template's file as messages name it: from `wgsl/` on for webnorm's own."""
    path, root = Path(file), Path(own)
    if not path.is_absolute():
        return str(Path(root.name) / path)
    return str(path.relative_to(root.parent)) if path.is_relative_to(root) else str(path)
