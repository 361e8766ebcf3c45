"""The contents of an export: shaders for each class of adapters, and a manifest for JavaScript."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from webnorm._version import __version__
from webnorm.choice.defaults import best_variant, nearest_variant
from webnorm.errors import WebnormError
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import Traits, device_features, extended, required_language
from webnorm.kernels.headers.variants import SOFTWARE_ITERATIONS, Variant, format_constants
from webnorm.kernels.rendering.render import MOST_BUFFERS, RenderCache, RenderedPass, Shader, render_shader
from webnorm.lab.verify.accuracy import loose_tolerance_warning
from webnorm.op import expression
from webnorm.op.op import Op, Task, Tensor
from webnorm.op.problem import Problem
from webnorm.web.package.manifest import CLASSES, LAB_CLASSES, MissingClass, missing_class_text, serves
from webnorm.web.package.request import ExportRequest

# cols, rows and eps are names of the manifest's format, which pages and apps read.

SCHEMA = 1
# Constants may depend on the rows, which an export does not know. These are typical numbers on a GPU and on a
# CPU.
_BATCH, _SOFTWARE_BATCH = 16384, 512
# More rows than any buffer can contain.
_MANY_ROWS = 2**31


@dataclass(frozen=True)
class Chooser:
    """A function that chooses a variant for adapters, or gives the reason why there is none.

    `features` are the features that its kernels declare.
    """

    choose: Callable[[Problem, Traits], tuple[Variant | None, str]]
    features: frozenset[str]

    @classmethod
    def among(
        cls, kernels: Sequence[Kernel], choose: Callable[[Problem, Traits], tuple[Variant | None, str]]
    ) -> Chooser:
        """Return a chooser among some kernels."""
        return cls(choose, frozenset().union(*(kernel.features for kernel in kernels)))


@dataclass(frozen=True)
class BundledShader:
    """A shader of a bundle, with its name and its class of adapters.

    `text` is for people and begins with a comment. `embedded` is the same text without comments, which runs.
    A shader `for_software` is only for software adapters, which run on the CPU.
    """

    name: str
    adapter_class: str
    shader: Shader
    text: str
    embedded: str
    for_software: bool = False

    def serves(self, traits: Traits) -> bool:
        """Return whether all devices of a class can run the shader."""
        return serves(self.shader.features, _limits(self.shader), self.for_software, traits)


@dataclass(frozen=True)
class Bundle:
    """The shaders of one problem for one or more numbers of columns."""

    name: str
    task: Task
    cols: tuple[int, ...]
    command: str
    shaders: tuple[BundledShader, ...]
    absent: tuple[MissingClass, ...] = ()
    """The classes of devices that none of its shaders serves."""

    @property
    def texts(self) -> dict[str, str]:
        """The WGSL that runs, by shader name."""
        return {one.name: one.embedded for one in self.shaders}

    def manifest(self) -> dict[str, Any]:
        """Return the JSON with which JavaScript chooses, binds and dispatches shaders; see docs/export.md."""
        op, problem = self.task.op, self.task.problem
        return {
            "schema": SCHEMA,
            "webnorm": __version__,
            "name": self.name,
            "op": op.name,
            **{name: bool(value) for name, value in op.constants.items()},
            "command": self.command,
            "cols": list(self.cols),
            "problem": {
                key: value
                for key, value in problem.as_json().items()
                if key in ("dtype", "options", *problem.SCALARS)
            },
            **({} if op.source is None else _user_op_entry(problem)),
            "numbers": {
                name: rule.as_json()
                for name, rule in problem.SCALARS.items()
                if name not in op.unused_scalars(problem)
            },
            "software_iterations": SOFTWARE_ITERATIONS,
            # Shapes are expressions of the sizes, which pages can evaluate.
            "tensors": [
                {
                    "name": tensor.name,
                    "access": "read" if tensor.access == "read" else "write",
                    "dtype": tensor.dtype(problem),
                    "shape": _shape(op, tensor, problem, self.cols),
                }
                for tensor in op.present(problem)
            ],
            "shaders": [_shader_entry(one) for one in self.shaders],
            "absent": list(self.absent),
        }


def _user_op_entry(problem: Problem) -> dict[str, Any]:
    """Return the entries for a user's op: the names of its batch and axis, and its other sizes.

    The expected outputs come from the vectors. Expressions call the batch `rows` and the axis `cols`.
    """
    axis = "" if problem.AXIS == problem.BATCH else problem.AXIS
    return {
        "reference": "vectors",
        "batch": problem.BATCH,
        "axis": axis,
        "sizes": {name: size for name, size in problem.sizes.items() if name not in (problem.BATCH, axis)},
    }


def _canonical(tree: expression.Tree, problem: Problem) -> expression.Tree:
    """Return the tree with the names that manifests use."""
    if isinstance(tree, list):
        return [tree[0], *(_canonical(one, problem) for one in tree[1:])]
    if isinstance(tree, str):
        return {problem.BATCH: "rows", problem.AXIS: "cols"}.get(tree, tree)
    return tree


def _shape(op: Op, tensor: Tensor, problem: Problem, axis_values: Sequence[int]) -> list[expression.Tree]:
    """Return the dimensions of a tensor, in which a user's op has numbers for sizes that all calls share."""
    one_axis = op.source is not None and len(axis_values) == 1
    named = {problem.BATCH} | (set() if one_axis else {problem.AXIS})
    known = {name: count for name, count in problem.counts.items() if name not in named}
    return [
        size
        if isinstance(size, int)
        else _canonical(expression.simplify(expression.parse(size), known), problem)
        for size in tensor.shape
    ]


def automatic_variants(kernels: Sequence[Kernel]) -> Chooser:
    """Return a chooser of the best exportable kernel for each class of adapters."""
    reasons = [_bound_to_rows(kernel) for kernel in kernels]
    taken = [kernel for kernel, why in zip(kernels, reasons, strict=True) if why is None]
    if reasons and not taken:
        return Chooser.among([], lambda problem, traits: (None, str(reasons[0])))
    return Chooser.among(taken, lambda problem, traits: best_variant(taken, problem, traits))


def named_variants(kernel: Kernel) -> Chooser:
    """Return a chooser of one kernel for all classes; it refuses a kernel that cannot be exported."""
    why = _bound_to_rows(kernel)
    if why is not None:
        return Chooser.among([], lambda problem, traits: (None, why))
    return Chooser.among([kernel], lambda problem, traits: nearest_variant(kernel, problem, traits))


def _bound_to_rows(kernel: Kernel) -> str | None:
    """Return why a kernel cannot be exported, or None. Pages need a kernel for any number of rows."""
    if kernel.compiles_batch_in:
        return f"kernel {kernel.name} compiles the number of rows in; an export takes any number"
    if any(each.grid for each in kernel.passes):
        return f"kernel {kernel.name} has its own grid; an export arranges workgroups itself"
    if not kernel.takes_slices:
        return f"kernel {kernel.name} takes all rows at once; an export takes any number"
    return None


def bundle_shaders(
    problem: Problem,
    choose: Chooser,
    command: str,
    *,
    prefix: str = "",
    classes: Mapping[str, Traits] = CLASSES,
    roots: Sequence[Path] = (),
    minify: bool = False,
) -> tuple[list[BundledShader], list[MissingClass]]:
    """Return the distinct shaders of a problem, the most demanding first, and the classes without a shader.

    Each class is extended by the features that the chooser's kernels declare. A name consists of the columns,
    `prefix` and the class. A text begins with a comment that contains `command`. Raises WebnormError if no
    class has a shader.
    """
    refusals: dict[str, str] = {}
    found: list[BundledShader] = []
    texts = RenderCache()
    # Begin with the least capable class: of two equal texts, the one with the lower requirements stays.
    for name, traits in reversed(list(extended_classes(classes, choose))):
        usual = problem.with_batch(_SOFTWARE_BATCH if traits.software else _BATCH)
        variant, why = choose.choose(usual, traits)
        if variant is None:
            refusals[name] = why
            continue
        shader = render_shader(variant, usual, "browser", traits, roots=roots, texts=texts)
        _refuse_unfit(shader, traits)
        # A software adapter takes the first shader for software, so equal texts for software are kept
        # separately.
        first = next((one for one in found if one.serves(traits)), None)
        if first and (first.for_software, first.shader.text) == (traits.software, shader.text):
            continue
        axis = "" if problem.AXIS == problem.BATCH else str(problem.axis)
        label = "-".join(part for part in (axis, prefix, name) if part)
        embedded = minified(shader.text)
        text = _opening(label, shader, command) + (embedded if minify else shader.text)
        found.insert(0, BundledShader(label, name, shader, text, embedded, traits.software))
    if not found:
        raise WebnormError(f"nothing to export for {problem}: {next(iter(refusals.values()))}")
    absent = [
        _missing_class(problem, found, name, refusals[name], next(extended(traits, choose.features))[1])
        for name, traits in classes.items()
        if name in refusals and not any(one.serves(traits) for one in found)
    ]
    return found, absent


def extended_classes(classes: Mapping[str, Traits], choose: Chooser) -> Iterator[tuple[str, Traits]]:
    """Yield the classes in order of preference, each after its extensions by the kernels' features."""
    for name, traits in classes.items():
        for more, each in extended(traits, choose.features):
            yield f"{name}-{more}" if more else name, each


def _missing_class(
    problem: Problem, found: Sequence[BundledShader], name: str, why: str, most: Traits
) -> MissingClass:
    """Return the entry for a class that no shader serves; `most` is the class with all declared features."""
    entry = MissingClass(cols=_axis_value(problem), devices=name, why=why)
    serving = [one.shader.features for one in found if one.serves(most)]
    if serving:
        entry["unless"] = sorted(serving[-1] - LAB_CLASSES[name].features)
    return entry


def _axis_value(problem: Problem) -> int:
    """Return the size of the axis, which distinguishes shaders; 1 if a problem has only a batch."""
    return 1 if problem.AXIS == problem.BATCH else problem.axis


def _refuse_unfit(shader: Shader, traits: Traits) -> None:
    """Raise WebnormError for a shader that a page could not run."""
    if shader.workgroup_bytes > traits.workgroup_storage:
        raise WebnormError(
            f"{shader.variant} uses {shader.workgroup_bytes} bytes of workgroup memory; expected at most "
            f"{traits.workgroup_storage}, the default limit of pages: add a [[require]] rule to its header"
        )
    for binding in shader.bindings:
        if len(binding.tensors) > 1:
            raise WebnormError(
                f"{shader.variant} with these options has more than {MOST_BUFFERS} buffers in a pass, the "
                f"default limit of pages; leave options out ({', '.join(binding.tensors)} would share one)"
            )


class PartialBundle(WebnormError):
    """Some devices have no shader, as `lacking` describes, and `--partial` is missing."""

    def __init__(self, lacking: str) -> None:
        super().__init__(f"{lacking}; use --partial to export the other shaders")
        self.lacking = lacking


def bundle_of(request: ExportRequest) -> Bundle:
    """Return the shaders and the manifest.

    Raises WebnormError if they cannot be exported, and PartialBundle if devices have no shader.
    """
    kernel = request.kernel
    if kernel is not None and kernel.unstable is not None and not request.forced:
        raise WebnormError(f"kernel {kernel.name} is unstable ({kernel.unstable}); use --force to export it")
    if kernel is not None and kernel.op != request.op:
        raise WebnormError(
            f"kernel {kernel.name} computes {kernel.op.name}; expected one of {request.op.name}"
        )
    chooser = automatic_variants(request.kernels) if kernel is None else named_variants(kernel)
    parts = [
        bundle_shaders(
            request.task(cols).problem, chooser, request.command, roots=request.roots, minify=request.minify
        )
        for cols in request.cols
    ]
    absent = tuple(one for _, lacking in parts for one in lacking)
    if absent and not request.partial:
        own = "the kernels" if kernel is None else f"kernel {kernel.name}"
        raise PartialBundle(f"{own}: {'; '.join(missing_class_text(absent))}")
    return Bundle(
        name=request.package_name,
        task=request.task(request.cols[0]),
        cols=request.cols,
        command=request.command,
        shaders=tuple(one for found, _ in parts for one in found),
        absent=absent,
    )


_DECLARED = re.compile(r"var<storage, \w+> (\w+): (array<([^;\n]{1,80})>);")
_ELEMENT_BYTES = {"vec4<f32>": 16, "vec4<f16>": 8, "vec2<u32>": 8, "f16": 2}


def _shader_entry(one: BundledShader) -> dict[str, Any]:
    shader, kernel = one.shader, one.shader.variant.kernel
    known = {name: value for name, value in shader.names.items() if name != shader.problem.BATCH}
    try:
        derived = {
            "bindings": _binding_entries(shader, known),
            "overrides": {},
            "passes": [_pass_entry(each, shader, known) for each in shader.passes],
            # The terms from which pages compute the tolerance.
            "accuracy": {**_accuracy_entry(kernel, shader.problem, known), "exact": kernel.op.is_copy},
        }
        remark = loose_tolerance_warning(shader)
    except WebnormError as error:
        raise kernel.mistake("cannot be exported", error) from error
    entry: dict[str, Any] = {
        "name": one.name,
        "file": f"shaders/{one.name}.wgsl",
        "sha256": hashlib.sha256(one.text.encode()).hexdigest(),
        "embedded_sha256": hashlib.sha256(one.embedded.encode()).hexdigest(),
        "cols": _axis_value(shader.problem),
        "kernel": kernel.name,
        "constants": dict(shader.variant.constants),
        "features": device_features(shader.features),
        "language_features": required_language(shader.features),
        **({"subgroup_sizes": sizes} if (sizes := shader.subgroup_sizes) else {}),
        "limits": _limits(shader),
        **derived,
        "summary": kernel.summary,
        "differs": kernel.differs,
        "rung": kernel.rung,
    }
    if one.for_software:
        entry["software"] = True
    if kernel.unstable is not None:
        entry["unstable"] = kernel.unstable
    if remark is not None:
        entry["loose"] = remark
    return entry


def _accuracy_entry(kernel: Kernel, problem: Problem, known: Mapping[str, int]) -> dict[str, Any]:
    rules = vars(kernel.accuracy).items()
    return {name: _canonical(expression.simplify(tree, known), problem) for name, tree in rules}


def _limits(shader: Shader) -> dict[str, int]:
    """Return the limits that a shader needs, with WebGPU's names."""
    widest = max(each.workgroup_size for each in shader.passes)
    return {
        "maxComputeInvocationsPerWorkgroup": widest,
        "maxComputeWorkgroupSizeX": widest,
        "maxComputeWorkgroupStorageSize": shader.workgroup_bytes,
        "maxStorageBuffersPerShaderStage": max(len(each.bindings) for each in shader.passes),
    }


def _binding_entries(shader: Shader, known: Mapping[str, int]) -> list[dict[str, Any]]:
    types = {match[1]: (match[2], match[3]) for match in _DECLARED.finditer(shader.text)}
    problem = shader.problem
    words = ["rows" if word == problem.BATCH else word for word in shader.params]
    kind = "immediate" if shader.immediates else "uniform"
    entries: list[dict[str, Any]] = [{"binding": 0, "name": "params", "type": kind, "words": words}]
    for binding in shader.bindings:
        if binding.name not in types:
            raise WebnormError(
                f"the text does not declare the buffer {binding.name}; declare it as lib/interface.wgsl or "
                "lib/tensors.wgsl does"
            )
        wgsl, element = types[binding.name]
        own = shader.variant.kernel.op.source is None
        width: str | int = problem.AXIS if binding.wide and own else binding.width
        shape: list[Any] = ["rows", width] if binding.batched else [width]
        if binding.records is not None:
            shape = [_canonical(expression.simplify(binding.records, known), problem), binding.width]
        entries.append(
            {
                "binding": binding.index,
                "name": binding.name,
                "type": "read-only-storage" if binding.access == "read" else "storage",
                "dtype": binding.dtype,
                "shape": shape,
                "per_row": binding.batched,
                "wgsl": wgsl,
                "element_bytes": _ELEMENT_BYTES.get(element, 4),
                **({} if binding.records is None else {"scratch": True}),
            }
        )
    return entries


def _pass_entry(rendered: RenderedPass, shader: Shader, known: Mapping[str, int]) -> dict[str, Any]:
    problem, uniform = shader.problem, [] if shader.immediates else [0]
    iterations = _canonical(expression.simplify(rendered.iterations, known), problem)
    if expression.evaluate(iterations, {"rows": _MANY_ROWS}) <= SOFTWARE_ITERATIONS:
        iterations = 0
    return {
        "entry_point": rendered.entry_point,
        "workgroup_size": rendered.workgroup_size,
        "workgroup_count": _canonical(expression.simplify(rendered.workgroup_count, known), problem),
        "per": "rows" if rendered.per == "slice" else rendered.per,
        "bindings": [*uniform, *(binding.index for binding in rendered.bindings)],
        **({} if iterations == 0 else {"iterations": iterations}),
    }


def _opening(name: str, shader: Shader, command: str) -> str:
    """Return the comment at the start of a text: its name, its requirements, and the command that made it."""
    kernel = shader.variant.kernel
    constants = format_constants(shader.variant.constants)
    features = ", ".join(sorted(shader.features)) or "none"
    invocations = max(each.workgroup_size for each in shader.passes)
    return (
        f"// {name}: {kernel.op.name} of {_sizes_text(shader.problem)}, {shader.problem.dtype}\n"
        f"// kernel {kernel.name}" + (f" ({constants})" if constants else "") + "\n"
        f"// features: {features}; limits: {invocations} invocations per workgroup, "
        f"{shader.workgroup_bytes} bytes of workgroup memory\n"
        f"// webnorm {__version__}: {command}\n\n"
    )


def _sizes_text(problem: Problem) -> str:
    """Return the sizes that are compiled into a shader, in words."""
    if problem.AXIS == "cols" and len(problem.SIZES) == 2:
        return f"{problem.axis} columns"
    fixed = [f"{name} {size}" for name, size in problem.sizes.items() if name != problem.BATCH]
    return ", ".join(fixed) or f"any number of {problem.BATCH}"


_COMMENT = re.compile(r"//[^\n]*|/\*|\*/")
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_WORD, _SIGN = re.compile(r"[\w.]"), re.compile(r"[-+*/&|<>=!%^~]")


def minified(text: str) -> str:
    """Return the WGSL without comments and without unneeded white space within lines."""
    lines = map(_close, _uncommented(text).splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _uncommented(text: str) -> str:
    """Return the text with a space in place of each comment; block comments nest in WGSL."""
    kept: list[str] = []
    depth = begin = 0
    at = _COMMENT.search(text)
    while at:
        if depth == 0:
            kept.append(text[begin : at.start()])
        depth += {"/*": 1, "*/": -1}.get(at[0], 0)
        begin = at.end()
        # Two slashes have no meaning inside a block comment.
        at = (_BLOCK_EDGE if depth else _COMMENT).search(text, begin)
    return " ".join([*kept, text[begin:]])


# The texts of a lab share most of their lines.
@lru_cache(maxsize=1 << 13)
def _close(line: str) -> str:
    """Return a line with only the white space that separates tokens."""
    closed = ""
    for part in line.split():
        apart = any(kind.match(closed[-1:]) and kind.match(part) for kind in (_WORD, _SIGN))
        closed += f" {part}" if apart else part
    return closed
