"""Rendering of templates: Jinja's sandbox, includes confined to their folders, and the origin of each line.

This module imports little, because it also runs in the child process of webnorm.kernels.rendering.sandbox.
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
from webnorm.errors import CLOSE, SourceLocation, WebnormError, nearest, sentence
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
# The files of Jinja and webnorm that compile templates. (Reading the version of an installed package takes
# 10 ms.)
_MAKERS = (
    *(Path(jinja2.__file__).with_name(f"{name}.py") for name in _OF_JINJA),
    *(Path(__file__).parents[1] / name for name in ("source_map/markers.py", "rendering/templates.py")),
)
# The limits of a rendered text in characters and lines: forty times webnorm's longest.
MOST_TEXT, MOST_LINES = 4 << 20, 100_000
# The factor by which a text may be longer with its markers.
_MARKED = 4
# The key of the set of looked-up names. No name in a template is empty.
_LOOKED_UP = ""


class TemplateCodeGenerator(CodeGenerator):
    """A code generator that omits the template's name where Jinja does not escape it."""

    def visit_CondExpr(self, node: nodes.CondExpr, frame: Frame) -> None:
        """Write an inline `if` without the template's name, which may contain a quote."""
        name, self.name = self.name, None
        try:
            super().visit_CondExpr(node, frame)
        finally:
            self.name = name


class TemplateBytecodeCache(BytecodeCache):
    """A cache of webnorm's compiled templates across processes, with one file per template."""

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the name of a template's file. Jinja's own method fails for paths that are not UTF-8."""
        return blake2b(os.fsencode(f"{name}|{filename}"), digest_size=20).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the cached code of a template into the bucket, if there is any."""
        with suppress(OSError):
            data = user_cache.load(_FOLDER, _key_of(bucket))
            if data is not None:
                bucket.bytecode_from_string(data)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store the bucket's code, if possible."""
        with suppress(OSError):
            user_cache.store(_FOLDER, _key_of(bucket), bucket.bytecode_to_string())


class ReadOnlyBytecodeCache(TemplateBytecodeCache):
    """A cache for processes that render a user's templates: it only reads code of webnorm's templates.

    The path of the file decides whether a template is webnorm's, because a user's snippet may have the same
    name. A process that rendered a user's template must not store code for other processes.
    """

    def __init__(self, own: str) -> None:
        self.own = Path(own)

    def get_bucket(self, environment: Environment, name: str, filename: str | None, source: str) -> Bucket:
        """Return the bucket of a template, with its cached code if it is webnorm's."""
        if filename is not None and Path(filename).is_relative_to(self.own):
            return super().get_bucket(environment, name, filename, source)
        return Bucket(environment, self.get_cache_key(name, filename), self.get_source_checksum(source))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store nothing."""


def _key_of(bucket: Bucket) -> bytes:
    """Return the cache key of a template. Raises OSError if a file of the compiler is missing."""
    return bucket.key.encode() + _made_by()


@cache
def _made_by() -> bytes:
    """Return a digest of the Python, Jinja and webnorm versions that compile, including local changes."""
    made = blake2b(MAGIC_NUMBER)
    for path in _MAKERS:
        made.update(path.read_bytes())
    return made.digest()


@dataclass(frozen=True)
class StorageBinding:
    """One storage binding of a shader, in group 0; binding 0 is the uniform `params`, if it is one.

    Attributes
    ----------
    width
        The array elements per batch element, or in total if it is not `batched`. In a buffer of several
        tensors, the elements of the largest one; in a scratch buffer, the floats per record.
    wide
        Whether `width` depends on the problem's sizes.
    itemsize
        The bytes per array element.
    tensors
        The tensors in the buffer, in order, each at a multiple of 16 bytes; empty for a scratch buffer.
    records
        The number of records of a scratch buffer.
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
        """The bytes of one batch element, or of the largest tensor if it is not batched."""
        return self.width * self.itemsize

    @property
    def stride(self) -> int:
        """The bytes from one of its tensors to the next."""
        return -(-self.inner_bytes // 16) * 16


@dataclass(frozen=True)
class TensorView:
    """A tensor for a template: its buffer, its first byte (`base`), and its number of array elements.

    `elements` is the number per batch element, or all if the tensor is not batched.
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
    """A rendering request: a kernel's file and the names that its template sees.

    Attributes
    ----------
    kernel
        The path of the file. It is in one of the `roots`, and contains no links.
    roots
        The folders to search for includes, in order.
    own
        The folder of webnorm's kernels. Messages name its files relative to its parent.
    runs
        Whether to record the origin of each character.
    unused
        Whether to keep unused declarations of webnorm's snippets.
    """

    kernel: str
    roots: tuple[str, ...]
    own: str
    context: Mapping[str, Any]
    entry_points: tuple[str, ...]
    runs: bool = False
    unused: bool = False


@dataclass(frozen=True)
class Rendering:
    """A rendered text with the origin of its lines.

    Attributes
    ----------
    origins
        The file and line of each line.
    workgroup_bytes
        The workgroup memory of its entry points.
    files
        The paths that were searched, with the stamps of the files there.
    names
        The names that its templates looked up. The same values of these names give the same text.
    runs
        The segments of each line, if requested.
    callers
        For each line of webnorm's snippets, the tag of another template that includes it, if requested.
    """

    text: str
    origins: tuple[tuple[str, int], ...]
    workgroup_bytes: int
    files: Mapping[str, sources.Stamp]
    names: frozenset[str]
    runs: tuple[tuple[LineSegment, ...], ...] = ()
    callers: tuple[SourceLocation | None, ...] = ()


class OutOfMemory(WebnormError):
    """Rendering exceeded its memory limit."""


class _RecordingContext(Context):
    """A template's context that records which names are looked up."""

    def resolve_or_missing(self, key: str) -> Any:
        """Return the value of a name, and record the lookup."""
        if (looked_up := self.parent.get(_LOOKED_UP)) is not None:
            looked_up.add(key)
        return super().resolve_or_missing(key)


class TemplateEnvironment(SandboxedEnvironment):
    """A Jinja environment for kernels, with confined includes and marked text."""

    context_class = _RecordingContext
    code_generator_class = TemplateCodeGenerator

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.includes: dict[str, set[str]] = {}

    @cached_property
    def lexer(self) -> Lexer:
        """The lexer that adds markers."""
        return MarkingLexer(self)

    def join_path(self, template: str, parent: str) -> str:
        """Check and return the name of an included template. Only the kernel's own name is absolute."""
        if not isinstance(template, str):
            raise IncludeRefused(template, "expected a file name")
        check_name(template)
        note_include(self.includes, parent, template)
        return template


class _Loader(BaseLoader):
    """A loader that searches the user's folders before webnorm's, and removes headers.

    `looked_at` has the stamp of every path it has searched. For each template and file that it has read,
    `shown` is the display name and `lines` the content; `owned` are webnorm's own.
    """

    def __init__(self, roots: Sequence[str], own: str) -> None:
        self.roots, self.own = roots, own
        self.forget()

    def forget(self) -> None:
        """Reset all state."""
        self.looked_at: dict[str, sources.Stamp] = {}
        self.shown: dict[str, str] = {"": ""}
        self.lines: dict[str, Sequence[str]] = {"": ()}
        self.owned = set[str]()
        self._kernels, self._outdated = set[str](), set[str]()

    def refresh(self) -> bool:
        """Mark changed kernels as outdated; return False if a snippet has changed or is now found elsewhere.

        No template includes a kernel, so only the kernel itself has to be read again.
        """
        changed = {path for path, known in list(self.looked_at.items()) if sources.stamp(path) != known}
        self._outdated |= changed
        return changed <= self._kernels

    def find(self, template: str) -> tuple[str, str]:
        """Return a template's file and the folder that must contain it. Raises TemplateNotFound."""
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
    """Return the environment of a search path. It parses each template once, and again after a change."""
    loader = _Loader(roots, own)
    environment = TemplateEnvironment(
        loader=loader,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=True,
        bytecode_cache=TemplateBytecodeCache() if roots == (own,) else ReadOnlyBytecodeCache(own),
    )
    return environment, loader


@signals.deferring
def render(request: RenderRequest, most_text: int = MOST_TEXT) -> Rendering:
    """Render at most `most_text` characters in this process. Errors have the template's file and line."""
    environment, loader = _environment(tuple(dict.fromkeys(request.roots)), request.own)
    if not loader.refresh():
        loader.forget()
        cast(Any, environment.cache).clear()
    environment.includes.clear()
    # The result of `trace` depends on this name.
    looked_up = {"tracing"}
    try:
        text, lines = _checked_text(request, environment, loader, most_text, looked_up)
        used = workgroup_bytes(text, request.entry_points)
        names = frozenset(looked_up.intersection(request.context))
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
    """Convert an error in rendering to a WebnormError with its place."""
    file, line = _template_line(error, request, loader)
    kind = WebnormError
    match error:
        case TemplateSyntaxError():
            file, line, message = error.filename or file, error.lineno, str(error.message)
        case TemplateNotFound():
            message = f"includes {sentence(repr(error.name), 80)}, which does not exist in its folders"
            near = nearest(Path(error.name or "").stem, _snippets(request.roots), CLOSE)
            message += f"; did you mean 'lib/{near}.wgsl'?" if near else ""
        case SyntaxError():
            # Python cannot compile the code that Jinja generated.
            message = str(error.msg)
        case MemoryError():
            kind, message = OutOfMemory, "rendering takes too much memory"
        case UndefinedError() if found := not_exported(str(error), loader.lines):
            file, line, message = found
        case UndefinedError():
            message = f"{error}{_advice(error, request, file)}"
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


def _advice(error: UndefinedError, request: RenderRequest, file: str) -> str:
    """Return the rest of the message about an undefined name of a file: the fix, if it is known."""
    name, *_ = re.findall(r"^'(\w+)' is undefined$", str(error)) or [""]
    if name in request.context:
        return "; its macro was imported without `with context`"
    if name and file.rpartition("/")[0].endswith("lib"):
        return "; the library uses it: define it in [tune] or [derive] of the kernel's header"
    near = nearest(name, request.context, CLOSE)
    return f"; did you mean {near!r}?" if near else ""


def _snippets(roots: Sequence[str]) -> set[str]:
    """Return the names of the snippets in these folders, without `lib/` and `.wgsl`."""
    found = set[str]()
    for root in roots:
        with suppress(OSError):
            found |= {path.stem for path in sources.wgsl_files(Path(root, "lib"))}
    return found


def _checked_text(
    request: RenderRequest, environment: Environment, loader: _Loader, most_text: int, looked_up: set[str]
) -> tuple[str, list[UnmarkedLine]]:
    """Return the text and its lines, with their runs if requested, and collect names in `looked_up`.

    Raises WebnormError for a text that is too large for a compiler.
    """
    place = display_path(request.kernel, request.own)
    context = {**request.context, "trace": tag(request.context), _LOOKED_UP: looked_up}
    marked = _at_most(_MARKED * most_text, environment.get_template(request.kernel).generate(context))
    lines = [] if marked is None else _lines_of(marked, loader, request.runs, request.unused)
    text = "\n".join(one.text for one in lines) + "\n"
    if marked is None or len(text) > most_text or len(lines) > MOST_LINES:
        size = "" if marked is None else f": {len(text)} and {len(lines)}"
        raise WebnormError(
            f"{place}: the rendered text exceeds {most_text} characters or {MOST_LINES} lines{size}"
        )
    wrong = _wrong(text)
    if wrong is None:
        return text, lines
    at, column, what = wrong
    one = _lines_of(marked, loader, True, request.unused)[at]
    file, line = loader.shown[one.origin[0]], one.origin[1]
    found = source_location(_shown_runs(one, loader), column) or SourceLocation(file or place, line)
    raise WebnormError(f"{file or place}:{line}: {what}", found)


def _wrong(text: str) -> tuple[int, int, str] | None:
    """Return the line and column, from 0, and a description of text that a compiler must not get."""
    if found := sources.FORBIDDEN.search(text):
        before = text[: found.start()]
        what = f"the rendered text contains {sources.code_point(found[0])}"
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


def _lines_of(marked: str, loader: _Loader, runs: bool, unused: bool) -> list[UnmarkedLine]:
    """Return the lines without markers and, unless `unused`, without webnorm's unused declarations."""
    snippets = {name for name in loader.owned if not Path(name).is_absolute()} if runs else None
    lines = without_markers(marked, loader.lines, snippets)
    if unused:
        return lines
    _, kept = strip_unused([one.text for one in lines], [one.makers <= loader.owned for one in lines])
    return [lines[at] for at in kept]


def _shown_runs(one: UnmarkedLine, loader: _Loader) -> tuple[LineSegment, ...]:
    return tuple(run._replace(file=loader.shown[run.file]) for run in one.runs)


def _at_most(most: int, pieces: Iterable[str]) -> str | None:
    """Join the pieces; None if they are longer than `most`."""
    kept, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            return None
        kept.append(piece)
    return "".join(kept)


def _template_line(error: BaseException, request: RenderRequest, loader: _Loader) -> tuple[str, int | None]:
    """Return the template's file and line of an error, which Jinja puts into the traceback."""
    place: tuple[str, int | None] = (request.kernel, None)
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file in loader.shown:
            place = (file, frame.tb_lineno)
        frame = frame.tb_next
    return place


def display_path(file: str, own: str) -> str:
    """Return a template's file for messages: webnorm's own start with `wgsl/`."""
    path, root = Path(file), Path(own)
    if not path.is_absolute():
        return str(Path(root.name) / path)
    return str(path.relative_to(root.parent)) if path.is_relative_to(root) else str(path)
