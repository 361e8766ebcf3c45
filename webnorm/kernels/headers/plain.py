"""Plain WGSL as a kernel: a file with bindings of its own, which are matched to an op's tensors by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webnorm.errors import SourceLocation, WebnormError, nearest
from webnorm.kernels.wgsl.tokens import UnterminatedComment, without_comments
from webnorm.op.op import Op
from webnorm.op.problem import Problem

_TEMPLATE = re.compile(r"\{[{%#]")
_ATTRIBUTES = r"((?:@\w+\s*(?:\([^)]*\))?\s*)+)"
_VARIABLE = re.compile(
    _ATTRIBUTES + r"var\s*<\s*(storage|uniform)\s*(?:,\s*(\w+))?\s*,?\s*>\s*(\w+)\s*:\s*([^;]+?)\s*;"
)
_NUMBER = re.compile(r"@(group|binding)\s*\(\s*(\w+?)\s*,?\s*\)")
_STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{([^}]*)\}")
_MEMBER = re.compile(r"((?:@\w+\s*(?:\([^)]*\))?\s*)*)(\w+)\s*:\s*([\w<>, ]+?)\s*$")
_ENTRY = re.compile(_ATTRIBUTES + r"fn\s+(\w+)")
_SIZE = re.compile(r"@workgroup_size\s*\(([^)]*)\)")
_OVERRIDE = re.compile(
    r"(?:@id\s*\(\s*\w+\s*\)\s*)?\boverride\s+(\w+)\s*(?::\s*(\w+))?\s*(?:=\s*([^;]+?))?\s*;"
)
_CONSTANT = re.compile(r"\b(?:const|override)\s+(\w+)\s*(?::\s*\w+)?\s*=\s*(\d+)[ui]?\s*;")
_ARRAY = re.compile(r"array\s*<\s*(?:vec[234]\s*<\s*)?(?:atomic\s*<\s*)?(\w+)\s*>?\s*(?:,\s*\w+\s*)?>")
_VECTORS = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}
# What elements of a buffer are, by what may be stored there.
_FITS = {
    "f32": ("float32",),
    "f16": ("float16",),
    "i32": ("int32", "uint32", "float16", "bfloat16", "int8", "uint8"),
    "u32": ("uint32", "int32", "float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"),
}


@dataclass(frozen=True)
class StorageVariable:
    """A storage binding of a plain text: its name, the type of its elements, and where its numbers stand.

    `numbers` has the characters of the numbers of @group and @binding, `mode` those of the access mode, where
    it has one. `holds` is the tensor, or the scratch buffer, that it is.
    """

    name: str
    element: str
    line: int
    numbers: Mapping[str, tuple[int, int]]
    mode: tuple[int, int] | None
    holds: str


@dataclass(frozen=True)
class PlainText:
    """A plain WGSL text and its interface.

    `words` are the members of the uniform in order, each a size or a scalar of the op with its type in WGSL.
    `overrides` has pipeline-overridable constants: the characters of each declaration, its name, type, and
    default.
    """

    text: str
    variables: tuple[StorageVariable, ...]
    uniform: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    words: tuple[tuple[str, str], ...] = ()
    overrides: tuple[tuple[tuple[int, int], str, str, str], ...] = ()

    def objection(self, op: Op, problem: Problem) -> str | None:
        """Why the text cannot compute a problem: its arrays are of other types."""
        for one in self.variables:
            tensor = op.named.get(one.holds)
            if tensor is not None and tensor.present(problem):
                dtype = tensor.dtype(problem)
                if dtype not in _FITS.get(one.element, ()):
                    return f"{one.name} is an array of {one.element}; {one.holds} is {dtype} here"
        absent = [one for one in self.variables if one.holds in op.named]
        for one in absent:
            if not op.named[one.holds].present(problem):
                return f"{one.name} is {one.holds}, which the problem does not have"
        bound = {one.holds for one in self.variables}
        for tensor in op.outputs(problem):
            if tensor.name not in bound:
                return f"no variable of the text is {tensor.name}, an output of the problem"
        return None

    def rendered(self, indices: Mapping[str, int], modes: Mapping[str, str], problem: Problem) -> str:
        """The text with the binding numbers of a plan, by the names of tensors and scratch buffers, and with
        the values of overridable constants that are sizes or scalars.
        """
        edits: list[tuple[int, int, str]] = []
        for one in self.variables:
            edits += [(*one.numbers["group"], "0"), (*one.numbers["binding"], str(indices[one.holds]))]
            if one.mode is not None:
                edits.append((*one.mode, modes[one.holds]))
        if self.uniform:
            edits += [(*self.uniform["group"], "0"), (*self.uniform["binding"], "0")]
        values: dict[str, Any] = {**problem.sizes, **problem.scalars}
        for span, name, kind, default in self.overrides:
            given = values.get(name)
            text = default if given is None else str(given)
            edits.append((*span, f"const {name}{f': {kind}' if kind else ''} = {text};"))
        text = self.text
        for begin, end, new in sorted(edits, reverse=True):
            text = text[:begin] + new + text[end:]
        return text


def is_plain(text: str) -> bool:
    """Whether a text, without its header, is plain WGSL: it has bindings and no templates."""
    return "@binding" in text and not _TEMPLATE.search(text)


def entry_points(text: str) -> dict[str, str]:
    """The compute entry points of a text, with the workgroup size of each as an expression of numbers."""
    code = _code(text)
    known = dict(_CONSTANT.findall(code))
    found: dict[str, str] = {}
    for attributes, name in _ENTRY.findall(code):
        size = _SIZE.search(attributes)
        if "@compute" in attributes and size:
            parts = [part.strip() for part in size[1].split(",") if part.strip()]
            found[name] = " * ".join(known.get(part, part.rstrip("ui")) for part in parts)
    return found


def read_plain(path: Path, text: str, op: Op, names: Mapping[str, str], scratch: Sequence[str]) -> PlainText:
    """Return the interface of a plain text for an op.

    `names` says what variables and members of the uniform are, where they are not called as the op's tensors,
    sizes and scalars; `scratch` names the header's scratch buffers. Raises WebnormError, with the line, for a
    variable that nothing is called like, and for types that are not known here.
    """
    code = _code(text)
    structs = {name: _members(body) for name, body in _STRUCT.findall(code)}
    variables: list[StorageVariable] = []
    uniform: Mapping[str, tuple[int, int]] = {}
    words: tuple[tuple[str, str], ...] = ()
    for found in _VARIABLE.finditer(code):
        space, name, kind = found[2], found[4], found[5]
        line = code.count("\n", 0, found.start(2)) + 1
        numbers = {
            one[1]: (found.start(1) + one.start(2), found.start(1) + one.end(2))
            for one in _NUMBER.finditer(found[1])
        }
        if numbers.keys() != {"group", "binding"}:
            raise _error(path, line, f"{name} has no @group and @binding with numbers")
        if space == "uniform":
            if uniform:
                raise _error(path, line, "a second uniform variable; expected one struct with all of them")
            uniform, words = numbers, _words(path, line, kind, structs, op, names)
            continue
        holds = names.get(name, name)
        known = [*op.named, *scratch]
        if holds not in known:
            near = nearest(holds, known)
            hint = f"did you mean {near!r}?" if near else f"{op.name} has {', '.join(known)}"
            raise _error(
                path, line, f"storage variable {name} is no tensor: {hint}; [bindings] says what it is"
            )
        mode = found.span(3) if found[3] else None
        variables.append(
            StorageVariable(name, _element(path, line, kind, structs), line, numbers, mode, holds)
        )
    _check_variables(path, variables, op)
    overrides = tuple((one.span(), one[1], one[2] or "", one[3] or "") for one in _OVERRIDE.finditer(code))
    for span, name, _, default in overrides:
        if not default and name not in (*op.problem_type.SIZES, *op.problem_type.SCALARS):
            line = code.count("\n", 0, span[0]) + 1
            raise _error(path, line, f"override {name} has no default, and is no size or scalar of {op.name}")
    return PlainText(text, tuple(variables), uniform, words, overrides)


def _check_variables(path: Path, variables: Sequence[StorageVariable], op: Op) -> None:
    holds = [one.holds for one in variables]
    for one in variables:
        if holds.count(one.holds) > 1:
            raise _error(path, one.line, f"two storage variables are {one.holds}; expected one")
    if not any(op.named[name].access == "read_write" for name in holds if name in op.named):
        outputs = [one.name for one in op.tensors if one.access == "read_write"]
        raise _error(path, 1, f"no storage variable is an output of {op.name}: {', '.join(outputs)}")


def _words(
    path: Path,
    line: int,
    kind: str,
    structs: Mapping[str, list[tuple[str, str]]],
    op: Op,
    names: Mapping[str, str],
) -> tuple[tuple[str, str], ...]:
    """The uniform's members, as sizes and scalars of the op."""
    kinds, scalars = op.problem_type, op.problem_type.SCALARS
    if kind not in structs:
        raise _error(path, line, f"the uniform is {kind}; expected a struct of u32, i32 and f32 in this file")
    found = []
    for member, of in structs[kind]:
        if of not in ("u32", "i32", "f32"):
            raise _error(path, line, f"member {member} of {kind} is {of}; expected u32, i32 or f32")
        name = names.get(member, member)
        known = [*kinds.SIZES, *scalars]
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"{op.name} has {', '.join(known)}"
            raise _error(
                path,
                line,
                f"member {member} of {kind} is no size or scalar: {hint}; [bindings] says what it is",
            )
        wanted = "f32" if name in scalars and not scalars[name].whole else "u32 or i32"
        if of not in wanted.split(" or "):
            raise _error(path, line, f"member {member} of {kind} is {of}; expected {wanted} for {name}")
        found.append((name, of))
    return tuple(found)


def _members(body: str) -> list[tuple[str, str]]:
    found = []
    # A comma inside of <> is part of a type.
    for part in re.split(r",(?![^<]*>)", body):
        member = _MEMBER.search(part.strip())
        if member:
            found.append((member[2], re.sub(r"\s+", "", member[3])))
    return found


def _element(path: Path, line: int, kind: str, structs: Mapping[str, list[tuple[str, str]]]) -> str:
    """The scalar type that a storage variable's array is made of."""
    if kind in structs and len(structs[kind]) == 1:
        # A struct around one array, as older texts have it.
        kind = structs[kind][0][1]
    found = _ARRAY.fullmatch(kind.strip())
    scalar = found[1] if found else kind.strip()
    if vector := re.fullmatch(r"vec[234]([fiuh])", scalar):
        scalar = _VECTORS[vector[1]]
    if scalar not in _FITS:
        raise _error(path, line, f"the type {kind.strip()} is not an array of f32, f16, i32 or u32")
    return scalar


def _code(text: str) -> str:
    """The text with blanks in place of comments: every character has its place."""
    try:
        return without_comments(text)
    except UnterminatedComment:
        return text


def _error(path: Path, line: int, message: str) -> WebnormError:
    return WebnormError(f"{path}:{line}: {message}", SourceLocation(str(path), line))
