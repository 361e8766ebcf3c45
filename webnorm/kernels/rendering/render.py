"""Rendering of a variant, a problem and a target to WGSL text with the origin of each line."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from webnorm import signals
from webnorm.errors import SourceLocation, WebnormError, check_kind, one_line, sentence, unknown
from webnorm.files.atomic import resolved
from webnorm.kernels.headers.header import home
from webnorm.kernels.headers.kernel import Kernel, Per, ScratchBuffer
from webnorm.kernels.headers.parameters import call_words, place_words
from webnorm.kernels.headers.plain import immediate_variables, subgroup_sizes
from webnorm.kernels.headers.sources import note_files, stamp, wgsl_root
from webnorm.kernels.headers.traits import IMMEDIATES, Traits, enable_directives, required_language
from webnorm.kernels.headers.variants import COUNTS, Variant
from webnorm.kernels.rendering import sandbox, templates
from webnorm.kernels.rendering.snippets import CallGraph
from webnorm.kernels.rendering.templates import Rendering, TensorView
from webnorm.kernels.rendering.templates import StorageBinding as Binding
from webnorm.kernels.rendering.tracing import parse_filter, with_trace
from webnorm.kernels.source_map.markers import LineSegment, source_location
from webnorm.kernels.wgsl.diagnostics import find_truncation, read_report
from webnorm.kernels.wgsl.tokens import nesting_too_deep, workgroup_bytes
from webnorm.op import expression
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Tensor
from webnorm.op.problem import Problem

Target = Literal["native", "browser"]
TARGETS: tuple[Target, ...] = ("native", "browser")
# WebGPU's default limit of storage buffers per pass (maxStorageBuffersPerShaderStage).
MOST_BUFFERS = 8
# The most floats in a record of a scratch buffer: no binding is larger.
MOST_WORDS = 1 << 30
_PARAMETERS = "parameters"
# The parameters of a problem without any, because WGSL has no empty struct.
_NO_WORDS = ("unused",)

# Additional folders whose templates are rendered in this process, without limits of time and memory. The
# paths contain no links. Only a program can add folders that it trusts; no file can.
trusted_roots: list[Path] = []


@dataclass(frozen=True)
class RenderedPass:
    """One pass with evaluated sizes; `workgroup_count` and `iterations` still depend on the batch."""

    entry_point: str
    workgroup_size: int
    workgroup_count: expression.Tree
    per: Per
    bindings: tuple[Binding, ...]
    iterations: expression.Tree = 0
    grid: tuple[expression.Tree, ...] = ()
    # Invocations per subgroup that the text fixes; 0 if the driver chooses.
    subgroup_size: int = 0


@dataclass(frozen=True, repr=False)
class Shader:
    """Rendered WGSL for one variant, problem and target, from `webnorm.render_shader`.

    Attributes
    ----------
    variant : Variant
        The kernel with its constants.
    problem : Problem
        The problem.
    target : {"native", "browser"}
        The WebGPU implementation that the text is for.
    text : str
        The WGSL.
    origins : tuple of (str, int)
        The template's file and line of each line of `text`.
    bindings : tuple of Binding
        The storage buffers.
    passes : tuple of RenderedPass
        The dispatches.
    params : tuple of str
        The words of `params`, which are in a uniform or in immediates.
    names : mapping of str to int
        The values of the header's names, except for the batch, which differs between slices.
    features : frozenset of str
        The WebGPU features and WGSL language features that the text needs.
    workgroup_bytes : int
        The workgroup memory that it uses, in bytes.
    request : RenderRequest
        The arguments of the rendering.
    """

    variant: Variant
    # An instance of the op's own problem type.
    problem: Any
    target: Target
    text: str
    origins: tuple[tuple[str, int], ...]
    bindings: tuple[Binding, ...]
    passes: tuple[RenderedPass, ...]
    params: tuple[str, ...]
    names: Mapping[str, int]
    features: frozenset[str]
    workgroup_bytes: int
    request: templates.RenderRequest = field(repr=False, compare=False)

    def __repr__(self) -> str:
        of = f"{self.variant} for {self.problem}, {self.target}"
        return f"<Shader of {one_line(of)}: {len(self.origins)} lines>"

    @property
    def immediates(self) -> bool:
        """True if `params` are immediates; otherwise they are a uniform at binding 0."""
        return IMMEDIATES in self.features

    @property
    def immediate_size(self) -> int:
        """The bytes of the immediates, 0 with a uniform."""
        return 4 * len(self.params) if self.immediates else 0

    @property
    def subgroup_sizes(self) -> list[int]:
        """The sizes of subgroups that its passes fix."""
        return sorted({each.subgroup_size for each in self.passes} - {0})

    def names_for(self, batch: int) -> dict[str, int]:
        """Return the values of the header's names for a slice of `batch` elements of the batch."""
        return {**self.names, self.problem.BATCH: batch}

    def workgroup_count(self, rendered: RenderedPass, batch: int) -> int:
        """Return the number of workgroups of a pass for a slice of `batch` elements of the batch.

        Raises
        ------
        WebnormError
            The header gives a negative number.
        """
        what = f"workgroup_count of pass {rendered.entry_point}"
        return self.variant.kernel.value(what, rendered.workgroup_count, self.names_for(batch), least=0)

    def grid(self, rendered: RenderedPass, batch: int) -> tuple[int, ...]:
        """Return the number of workgroups in each direction; empty if the header leaves it to the plan."""
        what, names = f"workgroup_count of pass {rendered.entry_point}", self.names_for(batch)
        return tuple(self.variant.kernel.value(what, tree, names, least=0) for tree in rendered.grid)

    def records(self, binding: Binding, batch: int) -> int:
        """Return the number of records of a scratch buffer, for a largest slice of `batch` elements.

        Raises
        ------
        WebnormError
            The header gives a negative number.
        """
        assert binding.records is not None
        what = f"records of {binding.name}"
        return self.variant.kernel.value(what, binding.records, self.names_for(batch), least=0)

    def located_error(self, message: str) -> WebnormError:
        """Return the error for a compiler's message: one line with the template's file, line and text."""
        report = read_report(message, self._lines, lambda: self._declared)
        line, complaint, column, length = report
        if line is None or not 1 <= line <= len(self.origins):
            return self._unplaced_error(complaint)
        (file, number), place = self.origins[line - 1], self.place(line, column, length)
        if lacking := find_truncation(self.text, report, self.place):
            line, complaint, place = lacking
            file, number = place.file, place.line
        quoted = sentence(self._lines[line - 1].strip(), 200)
        if caller := self.blamed(line, complaint):
            return WebnormError(
                f"{caller.file}:{caller.line}: {complaint}, in {file}:{number}: {quoted}", caller
            )
        return WebnormError(f"{file}:{number}: {complaint}: {quoted}", place)

    def _unplaced_error(self, complaint: str) -> WebnormError:
        """Return the error for a message about the whole text; it has the header's line of an entry point."""
        path = self.variant.kernel.path
        file, text = display_path(os.path.realpath(path)), ""
        with suppress(OSError, ValueError):
            text = path.read_text(encoding="utf-8")
        for name in (each.entry_point for each in self.passes):
            found = re.search(rf"""\bentry_point\s*=\s*["']({name})["']""", text)
            if found and f"no entry point `{name}`" in complaint:
                before = text[: found.start(1)]
                line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
                place = SourceLocation(file, line, column, len(name))
                return WebnormError(f"{file}:{line}: {complaint}", place)
        return WebnormError(f"{file}: {complaint}")

    def caller(self, line: int) -> SourceLocation | None:
        """Return the tag of the template that inserted a line of a webnorm snippet; None for other lines."""
        return self._again[line - 1][2] if 1 <= line <= len(self._again) else None

    def place(self, line: int, column: int | None = None, length: int = 0) -> SourceLocation | None:
        """Return the place in the template of a place in the text.

        The first call renders the text again to find columns. If a file has changed since, the place is only
        a line.

        Parameters
        ----------
        line : int
            The line of the text, from 1.
        column : int, optional
            The column in characters, from 1. Default: the first visible character of the line.
        length : int, default 0
            The length in characters.

        Returns
        -------
        SourceLocation or None
            The place in the template; None if the text has no such line.
        """
        if not 1 <= line <= min(len(self._lines), len(self.origins)):
            return None
        if self.variant.kernel.plain is not None:
            file, number = self.origins[line - 1]
            text = self._lines[line - 1]
            return SourceLocation(file, number, column or len(text) - len(text.lstrip()) + 1, length)
        text = self._lines[line - 1]
        known, runs, _ = self._again[line - 1] if self._again else ("", (), None)
        at = len(text) - len(text.lstrip()) if column is None else column - 1
        found = source_location(runs, at, length) if known == text else None
        return found or SourceLocation(*self.origins[line - 1])

    def author_calls(self, line: int) -> tuple[str, list[SourceLocation]]:
        """Return the snippet function that contains a line of the text, and the author's calls of it.

        Parameters
        ----------
        line : int
            The line of the text, from 1.

        Returns
        -------
        name : str
            The name of the function; empty if the line is not in a webnorm snippet.
        places : list of SourceLocation
            The calls in the author's template.
        """
        if self.caller(line) is None:
            return "", []
        library = [self.caller(number) is not None for number in range(1, len(self._lines) + 1)]
        functions = CallGraph(self._lines, library)
        name = functions.around(line)
        found = []
        for number in functions.calls(name) if name else ():
            called = re.search(rf"\b{name}\b", self._lines[number - 1])
            column = called.start() + 1 if called else None
            found.append(self.place(number, column, len(name) if called else 0))
        return name, [place for place in found if place is not None]

    def blamed(self, line: int, complaint: str) -> SourceLocation | None:
        """Return the author's line for a complaint about a line of a webnorm snippet; None for other lines.

        It is the tag that inserted the line, or for a complaint about uniformity the call of the function.
        """
        caller = self.caller(line)
        if caller is not None and "uniform" in complaint:
            return next(iter(self.author_calls(line)[1]), caller)
        return caller

    @cached_property
    def _lines(self) -> Sequence[str]:
        return self.text.splitlines()

    @cached_property
    def _declared(self) -> Sequence[str]:
        """The lines with the unused declarations of webnorm's snippets."""
        if self.variant.kernel.plain is None:
            with suppress(WebnormError):
                return _rendered(replace(self.request, unused=True)).text.splitlines()
        return self._lines

    @cached_property
    def _again(self) -> Sequence[tuple[str, Sequence[LineSegment], SourceLocation | None]]:
        """The lines of a second rendering, each with its segments and its caller."""
        with suppress(WebnormError):
            again = _rendered(replace(self.request, runs=True))
            if again.origins == self.origins:
                return list(zip(again.text.splitlines(), again.runs, again.callers, strict=True))
        return ()


class RenderCache:
    """A cache of renderings that ignores names which the templates do not look up.

    Adapters differ in more properties than a text depends on. The cache assumes that files do not change.
    """

    def __init__(self) -> None:
        self._known: list[tuple[templates.RenderRequest, Rendering]] = []

    def find(self, request: templates.RenderRequest) -> Rendering | None:
        """Return the cached rendering for a request, or None."""
        for known, found in self._known:
            same = replace(known, context=request.context) == request
            if same and all(known.context.get(name) == request.context.get(name) for name in found.names):
                return found
        return None

    def keep(self, request: templates.RenderRequest, rendering: Rendering) -> None:
        """Cache the rendering of a request."""
        self._known.append((request, rendering))


def display_path(file: str) -> str:
    """Return a template's file for messages: webnorm's own start with `wgsl/`."""
    return templates.display_path(file, str(wgsl_root().resolve()))


def _view(tensor: Tensor, problem: Problem, binding: Binding, offset: int) -> TensorView:
    """Return the position of a tensor in a binding."""
    return TensorView(
        tensor.name,
        binding.name,
        offset,
        tensor.access,
        tensor.batched,
        binding.dtype,
        tensor.wide,
        tensor.inner(problem),
    )


def _bindings(
    variant: Variant, problem: Problem, names: Mapping[str, int]
) -> tuple[tuple[Binding, ...], tuple[TensorView, ...]]:
    """Return the storage bindings, and the position of each tensor in them.

    If a pass would need more buffers than WebGPU guarantees, the parameters share one.
    """
    present = variant.kernel.op.present(problem)
    scratch = _scratch(variant.kernel, names)
    shared = _sharing(variant.kernel, present, [one.name for one, _ in scratch], names)
    bindings: list[Binding] = []
    views: list[TensorView] = []

    def add(name: str, tensors: Sequence[Tensor]) -> None:
        first = tensors[0]
        binding = Binding(
            index=len(bindings) + 1,
            name=name,
            access=first.access,
            batched=first.batched,
            dtype=first.dtype(problem),
            itemsize=DTYPES[first.dtype(problem)].itemsize,
            width=max(tensor.inner(problem) for tensor in tensors),
            wide=first.wide,
            tensors=tuple(tensor.name for tensor in tensors),
        )
        bindings.append(binding)
        views.extend(
            _view(tensor, problem, binding, at * binding.stride) for at, tensor in enumerate(tensors)
        )

    for tensor in present:
        if tensor not in shared:
            add(tensor.name, [tensor])
        elif tensor is shared[0]:
            add(_PARAMETERS, shared)
    for one, words in scratch:
        index, float32 = len(bindings) + 1, ("float32", 4)
        bindings.append(
            Binding(index, one.name, "read_write", one.batched, *float32, words, records=one.records)
        )
    return tuple(bindings), tuple(views)


def _scratch(kernel: Kernel, names: Mapping[str, int]) -> list[tuple[ScratchBuffer, int]]:
    """Return the scratch buffers that a problem needs, with the words per record."""
    scratch = []
    for one in kernel.scratch:
        words = kernel.value(f"words of {one.name}", one.words, names, least=0)
        if words > MOST_WORDS:
            raise kernel.mistake(f"words of {one.name}", f"{words}; the limit is {MOST_WORDS}")
        if words > 0:
            scratch.append((one, words))
    return scratch


def _sharing(
    kernel: Kernel, present: Sequence[Tensor], scratch: Sequence[str], known: Mapping[str, int]
) -> list[Tensor]:
    """Return the tensors that share a buffer because a pass would exceed WebGPU's guaranteed number."""
    names = [*(tensor.name for tensor in present), *scratch]
    passes = [
        one for one in kernel.passes if kernel.value(f"when of pass {one.entry_point}", one.when, known)
    ]
    # A variant without any pass gets its error later.
    most = max(
        (sum(one.bindings is None or name in one.bindings for name in names) for one in passes), default=0
    )
    return [
        tensor for tensor in present if most > MOST_BUFFERS and not tensor.batched and tensor.access == "read"
    ]


def _passes(
    variant: Variant, problem: Problem, names: Mapping[str, int], bindings: Sequence[Binding]
) -> Iterator[RenderedPass]:
    """Yield the passes of a problem: first the op's own, then the kernel's passes that it needs."""
    kernel = variant.kernel
    for tensor in kernel.op.present(problem):
        if tensor.opening is not None:
            bound = tuple(binding for binding in bindings if tensor.name in binding.tensors)
            yield RenderedPass(tensor.opening, 1, 1, "call", bound)
    for each in kernel.passes:
        where = f"of pass {each.entry_point}"
        if kernel.value(f"when {where}", each.when, names):
            kernel.value(f"iterations {where}", each.iterations, names, least=0)
            yield RenderedPass(
                each.entry_point,
                kernel.value(f"workgroup_size {where}", each.workgroup_size, names, least=1),
                each.workgroup_count,
                each.per,
                tuple(
                    binding
                    for binding in bindings
                    if each.bindings is None or {binding.name, *binding.tensors} & set(each.bindings)
                ),
                each.iterations,
                each.grid,
                kernel.value(f"subgroup_size {where}", each.subgroup_size, names, least=0),
            )


def _params(kernel: Kernel, problem: Problem, bindings: Sequence[Binding]) -> tuple[str, ...]:
    """Return the words of `params`; for plain WGSL the members of its own uniform or immediates."""
    if kernel.plain is not None:
        return tuple(name for name, _ in kernel.plain.words) or _NO_WORDS
    places = (place_words(one.name, one.batched, one.records is not None) for one in bindings)
    return tuple(itertools.chain(call_words(problem), *places)) or _NO_WORDS


@signals.deferring
def render_shader(
    variant: Variant,
    problem: Problem,
    target: Target,
    traits: Traits,
    *,
    roots: Sequence[Path] = (),
    count_cost: bool = False,
    tracing: str | None = None,
    texts: RenderCache | None = None,
) -> Shader:
    """Render a variant as WGSL for one problem and target.

    Parameters
    ----------
    variant : Variant
        The kernel with its constants.
    problem : Problem
        A problem of the kernel's op.
    target : {"native", "browser"}
        "native" is for wgpu; "browser" is for browsers.
    traits : Traits
        The limits and features of the adapter: `Device.traits`.
    roots : sequence of pathlib.Path, optional
        Folders whose `lib/` snippets replace webnorm's.
    count_cost : bool, default False
        Add counters to the helpers (see lab.run.jobs).
    tracing : str, optional
        Render traces and the functions that they call, filtered by this text (see lab.diagnose.trace). An
        empty text keeps all of them. Default: leave the traces out.
    texts : RenderCache, optional
        Renderings to reuse. New ones are added.

    Returns
    -------
    Shader
        The rendered text with its bindings and passes.

    Raises
    ------
    WebnormError
        The template cannot be rendered (the message names its file and line), or the op does not have the
        problem.

    Examples
    --------
    >>> import webnorm
    >>> kernel = webnorm.select(webnorm.discover(), "naive")
    >>> problem = webnorm.Problem(rows=4, cols=8)
    >>> traits = webnorm.find_adapter().traits
    >>> variant = webnorm.default_variant(kernel, problem, traits)
    >>> shader = webnorm.render_shader(variant, problem, "browser", traits)
    >>> "@compute" in shader.text
    True
    >>> [binding.name for binding in shader.bindings]
    ['x', 'weight', 'bias', 'y']
    """
    _check_arguments(variant, problem, target, traits, roots)
    kernel = variant.kernel
    kernel.op.check(problem)
    names = variant.names(problem, traits)
    _check_counts(variant, names)
    bindings, views = _bindings(variant, problem, names)
    params = _params(kernel, problem, bindings)
    features = variant.features(problem, traits)
    passes = tuple(_passes(variant, problem, names, bindings))
    _check_passes(variant, problem, target, passes)
    context = _context(kernel, problem, names)
    context.update(
        buffers=bindings,
        tensors=views,
        params=params,
        target=target,
        **_feature_names(features, target),
        count_cost=count_cost,
        tracing=tracing is not None,
    )
    request = _request(kernel.path, roots, context, [each.entry_point for each in passes])
    if kernel.plain is None:
        rendering = _traced(_rendered(request, texts), tracing, bindings, passes)
    else:
        rendering = _rendered_plain(kernel, problem, bindings, request, names)
    _check_declarations(rendering, features, passes, kernel.path)
    return Shader(
        variant=variant,
        problem=problem,
        target=target,
        text=rendering.text,
        origins=rendering.origins,
        bindings=bindings,
        passes=passes,
        params=params,
        names=names,
        features=features,
        workgroup_bytes=rendering.workgroup_bytes,
        request=request,
    )


def _feature_names(features: Set[str], target: Target) -> dict[str, Any]:
    """Return what a template sees of its features: the names for directives, and the use of immediates.

    naga has subgroups and immediates without a directive, and rejects their directives.
    """
    native = target == "native"
    return {
        "features": enable_directives(features - {"subgroups"} if native else features),
        "requires": [] if native else required_language(features),
        "immediates": IMMEDIATES in features,
    }


def _check_declarations(
    rendering: Rendering, features: Set[str], passes: Sequence[RenderedPass], path: Path
) -> None:
    """Raise WebnormError if the text and the header differ about subgroup sizes or immediates."""
    _check_subgroup_sizes(rendering.text, passes, path)
    if IMMEDIATES in features:
        return
    # naga accepts such a text, but nothing sets the numbers.
    for name, line in immediate_variables(rendering.text):
        file, number = rendering.origins[line - 1]
        raise WebnormError(
            f"{file}:{number}: var<immediate> {name} is in a variant without the feature {IMMEDIATES}; add "
            "the feature to [features], or remove the variable",
            SourceLocation(file, number),
        )


def _check_subgroup_sizes(text: str, passes: Sequence[RenderedPass], path: Path) -> None:
    """Raise WebnormError if an entry point's attribute for the subgroup size differs from its pass."""
    found = subgroup_sizes(text)
    for each in passes:
        size, written = each.subgroup_size, found.get(each.entry_point)
        if written is None and size:
            shown, remedy = f"no @subgroup_size({size})", "add the attribute before `fn`"
        elif written is not None and (own := _number(written)) not in (None, size):
            shown, remedy = f"@subgroup_size({own})", "use one size in [[pass]] and in the attribute"
        else:
            continue
        raise WebnormError(
            f"{path}: pass {each.entry_point} has subgroup_size {size}, but its function has {shown}; "
            f"{remedy}"
        )


def _number(text: str) -> int | None:
    """Return the value of an expression in a text; None if only the compiler can evaluate it."""
    with suppress(WebnormError):
        return expression.constant(expression.parse(text))
    return None


def _check_arguments(variant: object, problem: object, target: object, traits: object, roots: object) -> None:
    check_kind("variant", variant, Variant)
    check_kind("problem", problem, Problem)
    check_kind("traits", traits, Traits)
    if not isinstance(target, str) or target not in TARGETS:
        raise unknown("target", target, TARGETS)
    check_kind("roots", roots, Sequence, "a sequence of folders")
    for root in cast(Sequence[object], roots):
        check_kind("one of roots", root, Path)


def _check_passes(variant: Variant, problem: Problem, target: Target, passes: Sequence[RenderedPass]) -> None:
    """Raise WebnormError without passes, and for a browser's pass with more buffers than guaranteed."""
    if not passes:
        raise variant.kernel.mistake("[[pass]]", f"`when` leaves out every pass for {problem}")
    for each in passes:
        if target == "browser" and len(each.bindings) > MOST_BUFFERS:
            raise WebnormError(
                f"{variant}: pass {each.entry_point} binds {len(each.bindings)} storage buffers; "
                f"browsers guarantee only {MOST_BUFFERS}"
            )


def _check_counts(variant: Variant, names: Mapping[str, int]) -> None:
    """Raise WebnormError for counts of a header that are too small for the problem."""
    kernel = variant.kernel
    for name in COUNTS:
        if names.get(name, 1) < 1:
            raise kernel.mistake(f"derived {name}", f"it is {names[name]}; expected 1 or more")
    rules = kernel.accuracy
    for name, tree in (("serial_terms", rules.serial_terms), ("column_terms", rules.column_terms)):
        kernel.value(name, tree, names, least=0)
    kernel.value("rounded_mean", rules.rounded_mean, names)


def _request(
    path: Path, roots: Sequence[Path], context: Mapping[str, Any], entry_points: Sequence[str]
) -> templates.RenderRequest:
    own = wgsl_root().resolve()
    found = []
    for each in (path, *roots, home(path)[0]):
        try:
            found.append(str(resolved(each)))
        except OSError as error:
            raise WebnormError(f"{each}: cannot be read: {error.strerror or error}") from error
    real, *folders = found
    return templates.RenderRequest(real, (*folders, str(own)), str(own), context, tuple(entry_points))


def _rendered(request: templates.RenderRequest, texts: RenderCache | None = None) -> Rendering:
    """Render in this process if all files are trusted, else in the sandbox."""
    if texts is not None and (known := texts.find(request)) is not None:
        return known
    own = (Path(request.own), *trusted_roots)
    read = map(Path, (request.kernel, *request.roots))
    is_own = all(any(path.is_relative_to(root) for root in own) for path in read)
    rendering = templates.render(request) if is_own else sandbox.render(request)
    note_files(Path(request.kernel), rendering.files)
    if texts is not None:
        texts.keep(request, rendering)
    return rendering


def _context(kernel: Kernel, problem: Problem, names: Mapping[str, int]) -> dict[str, Any]:
    """Return the names that a template sees of its header, its op and its problem."""
    return {
        **{name: value for name, value in names.items() if name != problem.BATCH},
        "op": kernel.op.name,
        "dtype": problem.dtype,
        "sizes": {name: size for name, size in problem.sizes.items() if name != problem.BATCH},
        "float_words": tuple(name for name, rule in problem.SCALARS.items() if not rule.whole),
        "int_words": tuple(name for name, rule in problem.SCALARS.items() if rule.whole),
        **kernel.op.template_names(problem),
    }


def _rendered_plain(
    kernel: Kernel,
    problem: Problem,
    bindings: Sequence[Binding],
    request: templates.RenderRequest,
    values: Mapping[str, int],
) -> Rendering:
    """Return plain WGSL with a plan's binding numbers and the directives that the compiler accepts."""
    path, plain = kernel.path, kernel.plain
    assert plain is not None
    text = plain.rendered(
        kernel.op,
        {one.name: one.index for one in bindings},
        {one.name: one.access for one in bindings},
        problem,
        values,
        [*request.context["features"], *request.context["requires"]],
    )
    lines = text.count("\n") + 1
    if deep := nesting_too_deep(text):
        raise WebnormError(f"{path}:{deep[0] + 1}: {deep[1]}", SourceLocation(str(path), deep[0] + 1))
    note_files(path, {str(path): stamp(str(path))})
    origins = tuple((display_path(str(path)), number) for number in range(1, lines + 1))
    return Rendering(text, origins, workgroup_bytes(text, request.entry_points), {}, frozenset())


def _traced(
    rendering: Rendering, filter: str | None, bindings: Sequence[Binding], passes: Sequence[RenderedPass]
) -> Rendering:
    """Add the traces if requested; their buffer is bound after the others."""
    if filter is None:
        return rendering
    wanted, entry_points = parse_filter(filter).condition, [each.entry_point for each in passes]
    text, origins = with_trace(rendering.text, rendering.origins, wanted, len(bindings) + 1, entry_points)
    return replace(rendering, text=text, origins=origins)
