"""Rendering: a variant, a problem and a target become WGSL text whose lines know where they came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import (
    BaseLoader,
    Environment,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
)
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.sandbox import SandboxedEnvironment

from webnorm import expression
from webnorm.device import Traits
from webnorm.diagnostics import read_report
from webnorm.errors import WebnormError
from webnorm.kernel import Per, Variant, wgsl_root, without_header
from webnorm.ops import Tensor
from webnorm.problem import DTYPES, Problem

Target = Literal["native", "browser"]
TARGETS: tuple[Target, ...] = ("native", "browser")

# A marker stands before each line of template text and is taken out again after rendering. The two
# characters are noncharacters of Unicode: no WGSL holds them.
_MARK_OPEN, _MARK_CLOSE = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"{_MARK_OPEN}([^{_MARK_CLOSE}]*):(\\d+){_MARK_CLOSE}")
# The marker that a line's first visible character stands behind.
_FIRST_TEXT = re.compile(_MARK.pattern + f"\\s*(?=[^\\s{_MARK_OPEN}])")


# Storage buffers that WebGPU grants every pass ("Limits", maxStorageBuffersPerShaderStage).
MOST_BUFFERS = 8
# What an `enable` directive calls a feature. naga has subgroups without asking and refuses the directive.
_ENABLE = {"subgroups": "subgroups", "shader-f16": "f16"}
_PARAMETERS = "parameters"


@dataclass(frozen=True)
class Binding:
    """One storage binding of a shader, in group 0; binding 0 is the uniform `params`.

    `width` counts elements of a row, or of the whole where it is not `per_row`; `wide` tells that these are
    the problem's columns. `tensors` names what lies in it, one behind the other, each from a multiple of 16
    bytes on; nothing for a scratch buffer, whose `records` have `width` floats each.
    """

    index: int
    name: str
    access: Literal["read", "read_write"]
    per_row: bool
    dtype: str
    width: int
    wide: bool = False
    tensors: tuple[str, ...] = ()
    records: expression.Tree | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype].itemsize

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
class Step:
    """One pass with its sizes worked out; `workgroup_count` and `iterations` still depend on the rows."""

    entry_point: str
    workgroup_size: int
    workgroup_count: expression.Tree
    per: Per
    bindings: tuple[Binding, ...]
    iterations: expression.Tree = 0


@dataclass(frozen=True)
class Shader:
    """Rendered WGSL for one variant, problem and target.

    `origins[i]` is the file and line that line i of `text` came from. `names` are the values that the
    header's expressions see, with the rows left to each slice. `params` are the words of the uniform.
    """

    variant: Variant
    problem: Problem
    target: Target
    text: str
    origins: tuple[tuple[str, int], ...]
    bindings: tuple[Binding, ...]
    steps: tuple[Step, ...]
    params: tuple[str, ...]
    names: Mapping[str, int]
    features: frozenset[str]
    workgroup_bytes: int

    def workgroup_count(self, step: Step, rows: int) -> int:
        """Workgroups that a slice of `rows` rows takes."""
        return expression.evaluate(step.workgroup_count, {**self.names, "rows": rows})

    def records(self, binding: Binding, rows: int) -> int:
        """Records of a scratch buffer where the largest slice has `rows` rows."""
        assert binding.records is not None
        return expression.evaluate(binding.records, {**self.names, "rows": rows})

    def located(self, message: str) -> str:
        """A compiler's message in one line, with the template's file and line and the text quoted."""
        line, complaint = read_report(message)
        if line is None or not 1 <= line <= len(self.origins):
            return f"{display_path(str(self.variant.kernel.path.resolve()))}: {complaint}"
        file, number = self.origins[line - 1]
        return f"{file}:{number}: {complaint}: {self.text.splitlines()[line - 1].strip()}"


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


class _Loader(BaseLoader):
    """Finds snippets in the user's folders first, then in webnorm's, and takes headers off.

    Of what it has read, `shown` is the file as messages name it, and `blank` the numbers of its empty lines.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = roots
        self.shown: dict[str, str] = {"": ""}
        self.blank: dict[str, frozenset[int]] = {"": frozenset()}

    def find(self, template: str) -> Path:
        """The file of a template; raises TemplateNotFound without one."""
        path = Path(template)
        candidates = [path] if path.is_absolute() else [root / template for root in self.roots]
        for candidate in candidates:
            if candidate.is_file():
                return candidate.resolve()
        raise TemplateNotFound(template)

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Any]:
        path = self.find(template)
        changed = path.stat().st_mtime_ns
        source = path.read_text(encoding="utf-8")
        if Path(template).is_absolute():
            source = without_header(source, path)
        lines = enumerate(source.splitlines(), 1)
        self.shown[template] = display_path(str(path))
        self.blank[template] = frozenset(number for number, line in lines if not line.strip())
        return source, str(path), lambda: path.is_file() and path.stat().st_mtime_ns == changed


_WORKGROUP_VARIABLE = re.compile(
    r"var\s*<\s*workgroup\s*>\s*(\w+)\s*:\s*(?:array\s*<\s*([\w<>]+?)\s*,\s*(\d+)u?\s*>|([\w<>]+))\s*;"
)
_ALIAS = re.compile(r"alias\s+(\w+)\s*=\s*([\w<>]+)\s*;")
_FUNCTION = re.compile(r"^fn\s+(\w+)", re.MULTILINE)
_TYPE_BYTES = {"vec2<f32>": 8, "vec3<f32>": 16, "vec4<f32>": 16}


def _workgroup_bytes(text: str, entry_points: Iterable[str]) -> int:
    """Bytes of workgroup memory of the entry point that uses most, as WebGPU counts them.

    Each variable is rounded up to 16; WGSL lays a vec3 out as a vec4.
    """
    aliases = dict(_ALIAS.findall(text))
    sizes: dict[str, int] = {}
    for name, element, count, single in _WORKGROUP_VARIABLE.findall(text):
        size = _TYPE_BYTES.get(aliases.get(element or single, element or single), 4) * int(count or 1)
        sizes[name] = -(-size // 16) * 16
    functions = _FUNCTION.split(_WORKGROUP_VARIABLE.sub("", text))
    words = {
        name: set(re.findall(r"\w+", body))
        for name, body in zip(functions[1::2], functions[2::2], strict=True)
    }

    def used(name: str, seen: set[str]) -> set[str]:
        seen.add(name)
        for other in words.get(name, set()) - seen:
            used(other, seen)
        return seen

    return max(sum(sizes.get(name, 0) for name in used(entry, set())) for entry in entry_points)


def _strip_marks(marked: str, loader: _Loader) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Take the markers out; leave out lines that held nothing but template tags."""
    lines: list[str] = []
    origins: list[tuple[str, int]] = []
    for line in marked.split("\n"):
        match = _FIRST_TEXT.search(line) or _MARK.search(line)
        text = _MARK.sub("", line).rstrip()
        origin = (match[1], int(match[2])) if match else (origins[-1] if origins else ("", 0))
        if not text:
            file, number = origin
            if not lines or not lines[-1] or number not in loader.blank[file]:
                continue
        lines.append(text)
        origins.append(origin)
    while lines and not lines[-1]:
        lines.pop()
        origins.pop()
    return "\n".join(lines) + "\n", tuple((loader.shown[file], number) for file, number in origins)


def display_path(file: str) -> str:
    """A template's file as messages name it: from `wgsl/` on for webnorm's own."""
    path = Path(file)
    root = wgsl_root().resolve()
    if not path.is_absolute():
        return str(Path(root.name) / path)
    return str(path.relative_to(root.parent)) if path.is_relative_to(root.parent) else str(path)


@lru_cache(maxsize=16)
def _environment(roots: tuple[Path, ...]) -> tuple[Environment, _Loader]:
    """Templates are parsed once for each search path, and again when their file changes."""
    loader = _Loader(roots)
    environment = SandboxedEnvironment(
        loader=loader, undefined=StrictUndefined, extensions=[_LineMarks], keep_trailing_newline=True
    )
    return environment, loader


def _bindings(
    variant: Variant, problem: Problem, names: Mapping[str, int]
) -> tuple[tuple[Binding, ...], tuple[View, ...]]:
    """The storage bindings, and where each tensor lies in them.

    Where a pass would have more buffers than a page can count on, the parameters share one.
    """
    kernel = variant.kernel
    present = kernel.op.present(problem)
    scratch = [(one, words) for one in kernel.scratch if (words := expression.evaluate(one.words, names)) > 0]
    most = max(
        sum(
            step.bindings is None or name in step.bindings
            for name in [*(t.name for t in present), *(s.name for s, _ in scratch)]
        )
        for step in kernel.passes
    )
    shared = [t for t in present if most > MOST_BUFFERS and t.kind == "parameter" and t.access == "read"]
    bindings: list[Binding] = []
    views: list[View] = []

    def add(name: str, tensors: Sequence[Tensor]) -> None:
        first = tensors[0]
        binding = Binding(
            index=len(bindings) + 1,
            name=name,
            access=first.access,
            per_row=first.per_row,
            dtype=first.dtype(problem),
            width=problem.cols if first.width is None else first.width,
            wide=first.width is None,
            tensors=tuple(tensor.name for tensor in tensors),
        )
        bindings.append(binding)
        views.extend(
            View(t.name, name, at * binding.stride, t.access, t.per_row, binding.dtype, t.width is None)
            for at, t in enumerate(tensors)
        )

    for tensor in present:
        if tensor not in shared:
            add(tensor.name, [tensor])
        elif tensor is shared[0]:
            add(_PARAMETERS, shared)
    for one, words in scratch:
        bindings.append(
            Binding(
                len(bindings) + 1, one.name, "read_write", one.per_row, "float32", words, records=one.records
            )
        )
    return tuple(bindings), tuple(views)


def _steps(
    variant: Variant, problem: Problem, names: Mapping[str, int], bindings: Sequence[Binding]
) -> Iterator[Step]:
    """The passes of a problem: the op's own first, then those of the kernel's that it needs."""
    kernel = variant.kernel
    for tensor, entry_point in (kernel.op.opening or {}).items():
        bound = tuple(binding for binding in bindings if tensor in binding.tensors)
        if bound:
            yield Step(entry_point, 1, 1, "call", bound)
    for step in kernel.passes:
        if expression.evaluate(step.when, names):
            yield Step(
                step.entry_point,
                expression.evaluate(step.workgroup_size, names),
                step.workgroup_count,
                step.per,
                tuple(
                    binding
                    for binding in bindings
                    if step.bindings is None or {binding.name, *binding.tensors} & set(step.bindings)
                ),
                step.iterations,
            )


def _params(bindings: Sequence[Binding]) -> tuple[str, ...]:
    """The words of the uniform: where a slice starts in each buffer; how many records there are, and whether
    slices before this one have written them.
    """
    words = ["rows", "eps", "scale"]
    for binding in bindings:
        if binding.per_row:
            words.append(f"{binding.name}_start")
        elif binding.records is not None:
            words += [f"{binding.name}_count", f"{binding.name}_kept"]
    return tuple(words)


def render_shader(
    variant: Variant,
    problem: Problem,
    target: Target,
    traits: Traits,
    *,
    roots: Sequence[Path] = (),
    count_cost: bool = False,
) -> Shader:
    """Render a variant for one problem and target.

    `roots` are folders of the user's whose `lib/` snippets go before webnorm's. `count_cost` renders
    the helpers with counters (see webnorm.cost). Raises WebnormError with the template's file and line.
    """
    kernel = variant.kernel
    names = variant.names(problem, traits)
    kernel.op.check(problem)
    bindings, views = _bindings(variant, problem, names)
    params = _params(bindings)
    features = variant.features(problem, traits)
    steps = tuple(_steps(variant, problem, names, bindings))
    for step in steps:
        if target == "browser" and len(step.bindings) > MOST_BUFFERS:
            raise WebnormError(
                f"{variant}: pass {step.entry_point} binds {len(step.bindings)} storage buffers; "
                f"a page can count on {MOST_BUFFERS}"
            )
    environment, loader = _environment((*roots, kernel.path.resolve().parent.parent, wgsl_root()))
    context: dict[str, Any] = {name: value for name, value in names.items() if name != "rows"}
    context.update(
        buffers=bindings,
        tensors=views,
        params=params,
        op=kernel.op.name,
        has_mean=kernel.op.has_mean,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        target=target,
        features=[_ENABLE[name] for name in sorted(features) if target == "browser" or name != "subgroups"],
        count_cost=count_cost,
    )
    try:
        marked = environment.get_template(str(kernel.path.resolve())).render(context)
    except TemplateSyntaxError as error:
        place = display_path(error.filename or str(kernel.path.resolve()))
        raise WebnormError(f"{place}:{error.lineno}: {error.message}") from error
    except TemplateNotFound as error:
        raise WebnormError(
            f"{_template_line(error, kernel.path)}: includes {error.name!r}, which is in none of its folders"
        ) from error
    except (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise WebnormError(f"{_template_line(error, kernel.path)}: {error}") from error
    text, origins = _strip_marks(marked, loader)
    return Shader(
        variant=variant,
        problem=problem,
        target=target,
        text=text,
        origins=origins,
        bindings=bindings,
        steps=steps,
        params=params,
        names=names,
        features=features,
        workgroup_bytes=_workgroup_bytes(text, [step.entry_point for step in steps]),
    )


def _template_line(error: BaseException, fallback: Path) -> str:
    """The template's file and line that an error came through: Jinja puts them in the traceback."""
    place = display_path(str(fallback.resolve()))
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename.endswith(".wgsl"):
            place = f"{display_path(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place
