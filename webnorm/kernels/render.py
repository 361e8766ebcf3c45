"""Rendering: a variant, a problem and a target become WGSL text whose lines know where they came from."""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from webnorm.errors import WebnormError, check_kind, sentence, shown, unknown
from webnorm.files import absolute, resolved
from webnorm.kernels import confined, expression, templates
from webnorm.kernels.diagnostics import read_report
from webnorm.kernels.header import home
from webnorm.kernels.kernel import Kernel, Per, Scratch
from webnorm.kernels.sources import Stamp, stamp, wgsl_root
from webnorm.kernels.templates import Binding as Binding
from webnorm.kernels.templates import Rendering, View
from webnorm.kernels.traits import Traits
from webnorm.kernels.variants import Variant
from webnorm.norms.ops import Tensor
from webnorm.norms.problem import DTYPES, Problem

Target = Literal["native", "browser"]
TARGETS: tuple[Target, ...] = ("native", "browser")
# Storage buffers that WebGPU grants every pass ("Limits", maxStorageBuffersPerShaderStage).
MOST_BUFFERS = 8
# Floats of a scratch buffer's record: no binding holds more.
MOST_WORDS = 1 << 30
# What the snippets count with, where a header has it.
_COUNTS = ("steps", "threads_per_row", "rows_per_workgroup", "vector_width", "workgroup_size")
# What an `enable` directive calls a feature. naga has subgroups without asking and refuses the directive.
_ENABLE = {"subgroups": "subgroups", "shader-f16": "f16"}
_PARAMETERS = "parameters"

# Folders beside webnorm's own, by paths without links, whose templates are rendered in this process with
# no bounds of time and memory. A program may name some that it trusts as its own text; no file can.
trusted_roots: list[Path] = []


@dataclass(frozen=True)
class RenderedPass:
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
    passes: tuple[RenderedPass, ...]
    params: tuple[str, ...]
    names: Mapping[str, int]
    features: frozenset[str]
    workgroup_bytes: int

    def workgroup_count(self, rendered: RenderedPass, rows: int) -> int:
        """Workgroups that a slice of `rows` rows takes; raises WebnormError for less than none."""
        what = f"workgroup_count of pass {rendered.entry_point}"
        return self.variant.kernel.value(
            what, rendered.workgroup_count, {**self.names, "rows": rows}, least=0
        )

    def records(self, binding: Binding, rows: int) -> int:
        """Records of a scratch buffer where the largest slice has `rows` rows; raises WebnormError for less
        than none.
        """
        assert binding.records is not None
        what = f"records of {binding.name}"
        return self.variant.kernel.value(what, binding.records, {**self.names, "rows": rows}, least=0)

    def located(self, message: str) -> str:
        """A compiler's message in one line, with the template's file and line and the text quoted."""
        line, complaint = read_report(message)
        if line is None or not 1 <= line <= len(self.origins):
            return f"{display_path(os.path.realpath(self.variant.kernel.path))}: {complaint}"
        file, number = self.origins[line - 1]
        quoted = sentence(self.text.splitlines()[line - 1].strip(), 200)
        return f"{file}:{number}: {complaint}: {quoted}"


def display_path(file: str) -> str:
    """A template's file as messages name it: from `wgsl/` on for webnorm's own."""
    return templates.display_path(file, str(wgsl_root().resolve()))


def _bindings(
    variant: Variant, problem: Problem, names: Mapping[str, int]
) -> tuple[tuple[Binding, ...], tuple[View, ...]]:
    """The storage bindings, and where each tensor lies in them.

    Where a pass would have more buffers than a page can count on, the parameters share one.
    """
    present = variant.kernel.op.present(problem)
    scratch = _scratch(variant.kernel, names)
    shared = _sharing(variant.kernel, present, [one.name for one, _ in scratch])
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
            itemsize=DTYPES[first.dtype(problem)].itemsize,
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
        index, float32 = len(bindings) + 1, ("float32", 4)
        bindings.append(
            Binding(index, one.name, "read_write", one.per_row, *float32, words, records=one.records)
        )
    return tuple(bindings), tuple(views)


def _scratch(kernel: Kernel, names: Mapping[str, int]) -> list[tuple[Scratch, int]]:
    """The scratch buffers that a problem needs, with the words of a record."""
    scratch = []
    for one in kernel.scratch:
        words = kernel.value(f"words of {one.name}", one.words, names, least=0)
        if words > MOST_WORDS:
            raise kernel.mistake(f"words of {one.name}", f"{words}; expected at most {MOST_WORDS}")
        if words > 0:
            scratch.append((one, words))
    return scratch


def _sharing(kernel: Kernel, present: Sequence[Tensor], scratch: Sequence[str]) -> list[Tensor]:
    """The tensors that share a buffer, since a pass would bind more of them than a page can count on."""
    names = [*(tensor.name for tensor in present), *scratch]
    most = max(
        sum(each.bindings is None or name in each.bindings for name in names) for each in kernel.passes
    )
    return [
        tensor
        for tensor in present
        if most > MOST_BUFFERS and tensor.kind == "parameter" and tensor.access == "read"
    ]


def _passes(
    variant: Variant, problem: Problem, names: Mapping[str, int], bindings: Sequence[Binding]
) -> Iterator[RenderedPass]:
    """The passes of a problem: the op's own first, then those of the kernel's that it needs."""
    kernel = variant.kernel
    for tensor, entry_point in (kernel.op.opening or {}).items():
        bound = tuple(binding for binding in bindings if tensor in binding.tensors)
        if bound:
            yield RenderedPass(entry_point, 1, 1, "call", bound)
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
    the helpers with counters (see lab.cost). Raises WebnormError with the template's file and line.
    """
    _check_arguments(variant, problem, target, traits, roots)
    kernel = variant.kernel
    kernel.op.check(problem)
    names = variant.names(problem, traits)
    _check_counts(variant, names)
    bindings, views = _bindings(variant, problem, names)
    params = _params(bindings)
    features = variant.features(problem, traits)
    passes = tuple(_passes(variant, problem, names, bindings))
    if not passes:
        raise kernel.mistake("[[pass]]", f"every pass is left out for {problem}")
    if target == "browser":
        _check_buffers(variant, passes)
    context: dict[str, Any] = {name: value for name, value in names.items() if name != "rows"}
    context.update(
        buffers=bindings,
        tensors=views,
        params=params,
        op=kernel.op.name,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        target=target,
        features=[_ENABLE[name] for name in sorted(features) if target == "browser" or name != "subgroups"],
        count_cost=count_cost,
    )
    rendering = _rendering(kernel.path, roots, context, [each.entry_point for each in passes])
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
    )


def _check_arguments(variant: object, problem: object, target: object, traits: object, roots: object) -> None:
    check_kind("variant", variant, Variant)
    check_kind("problem", problem, Problem)
    check_kind("traits", traits, Traits)
    if not isinstance(target, str) or target not in TARGETS:
        raise unknown("target", shown(target), TARGETS)
    check_kind("roots", roots, Sequence, "a sequence of folders")
    for root in cast(Sequence[object], roots):
        check_kind("one of roots", root, Path)


def _check_buffers(variant: Variant, passes: Sequence[RenderedPass]) -> None:
    for each in passes:
        if len(each.bindings) > MOST_BUFFERS:
            raise WebnormError(
                f"{variant}: pass {each.entry_point} binds {len(each.bindings)} storage buffers; "
                f"a page can count on {MOST_BUFFERS}"
            )


def _check_counts(variant: Variant, names: Mapping[str, int]) -> None:
    """Raise WebnormError for numbers of a header that no problem makes sense of."""
    kernel = variant.kernel
    for name in _COUNTS:
        if names.get(name, 1) < 1:
            raise kernel.mistake(f"derived {name}", f"it is {names[name]}; expected 1 or more")
    rules = kernel.accuracy
    for name, tree in (("serial_terms", rules.serial_terms), ("column_terms", rules.column_terms)):
        kernel.value(name, tree, names, least=0)
    kernel.value("rounded_mean", rules.rounded_mean, names)


def _rendering(
    path: Path, roots: Sequence[Path], context: Mapping[str, Any], entry_points: Sequence[str]
) -> Rendering:
    """The text: made in this process where all of it is webnorm's own, else in the confined one."""
    own = wgsl_root().resolve()
    real, *folders = _resolved(path, *roots, home(path)[0])
    folders.append(own)
    request = templates.RenderRequest(
        str(real), tuple(map(str, folders)), str(own), context, tuple(entry_points)
    )
    is_own = all(
        any(folder.is_relative_to(root) for root in (own, *trusted_roots)) for folder in (real, *folders)
    )
    rendering = templates.render(request) if is_own else confined.render(request)
    if real in _made_of:
        number, files = _made_of[real]
        if any(rendering.files.get(file, known) != known for file, known in files.items()):
            number = next(_revisions)
        _made_of[real] = (number, {**files, **rendering.files})
    return rendering


def _resolved(*paths: Path) -> Iterator[Path]:
    for path in paths:
        try:
            yield resolved(path)
        except OSError as error:
            raise WebnormError(f"{path}: cannot be read: {error.strerror or error}") from error


# For the kernels that `revision` was asked about: what it said last, and the files that the text was made of.
_made_of: OrderedDict[Path, tuple[int, Mapping[str, Stamp]]] = OrderedDict()
_revisions = itertools.count()
_MOST_FOLLOWED = 256


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


def identity(path: Path) -> tuple[str, int]:
    """Where a kernel's file lies, links as they are, and its revision; WebnormError where there is none."""
    try:
        place = absolute(path)
        place.stat()
        return str(place), revision(place)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise WebnormError(f"{sentence(str(path))}: cannot read the kernel: {why}") from error
