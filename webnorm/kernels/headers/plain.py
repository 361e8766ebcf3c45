"""Plain WGSL as a kernel: a file whose bindings are matched to an op's tensors by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from webnorm.errors import SourceLocation, WebnormError, nearest
from webnorm.kernels.headers.directives import declared_features, directive_edits
from webnorm.kernels.wgsl.tokens import UnterminatedComment, without_comments
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Op
from webnorm.op.problem import Problem

_TEMPLATE = re.compile(r"\{[{%#]")
_ATTRIBUTES = r"((?:@\w+\s*(?:\([^)]*\))?\s*)+)"
_VARIABLE = re.compile(
    _ATTRIBUTES + r"var\s*<\s*(storage|uniform)\s*(?:,\s*(\w+))?\s*,?\s*>\s*(\w+)\s*:\s*([^;]+?)\s*;"
)
_IMMEDIATE = re.compile(r"\bvar\s*<\s*immediate\s*,?\s*>\s*(\w+)\s*:\s*([^;]+?)\s*;")
_NUMBER = re.compile(r"@(group|binding)\s*\(\s*(\w+?)\s*,?\s*\)")
_STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{([^}]*)\}")
_MEMBER = re.compile(r"((?:@\w+\s*(?:\([^)]*\))?\s*)*)(\w+)\s*:\s*([\w<>, ]+?)\s*$")
_FUNCTION = re.compile(r"\bfn\s+(\w+)")
_DECLARATION_END = re.compile(r"[;{}]")
_SIZE = re.compile(r"@workgroup_size\s*\(([^)]*)\)")
_SUBGROUP_SIZE = re.compile(r"@subgroup_size\s*\(([^()]*)\)")
_OVERRIDE = re.compile(
    r"(?:@id\s*\(\s*\w+\s*\)\s*)?\boverride\s+(\w+)\s*(?::\s*(\w+))?\s*(?:=\s*([^;]+?))?\s*;"
)
_CONSTANT = re.compile(r"\b(?:const|override)\s+(\w+)\s*(?::\s*[ui]32)?\s*=\s*([\w\s+*/()-]+?)\s*;")
_LITERAL = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[ui]?\b")
_ALIAS = re.compile(r"\balias\s+(\w+)\s*=\s*([^;]+?)\s*;")
_LENGTH = re.compile(r"\b(?:array|buffer)Length\s*\(\s*&\s*(\w+)(?:\s*\.\s*\w+)?\s*\)")
_VECTORS = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}
# The storage types that fit each WGSL element type.
_FITS = {
    "f32": ("float32",),
    "f16": ("float16",),
    "i32": ("int32", "uint32", "float32", "float16", "bfloat16", "int8", "uint8"),
    "u32": (
        "uint32",
        "int32",
        "float32",
        "float16",
        "bfloat16",
        "int8",
        "uint8",
        "float8_e4m3fn",
        "float8_e5m2",
    ),
    # A buffer's views have types of their own.
    "buffer": DTYPES,
}

_BYTES = {"f32": 4, "f16": 2, "i32": 4, "u32": 4, "buffer": 1}
# The built-in values that number workgroups or invocations in grids of any number of dimensions.
_GRID = re.compile(r"\b(?:num_workgroups|workgroup_index|global_invocation_index)\b")


@dataclass(frozen=True)
class StorageVariable:
    """A storage binding of a plain text.

    `numbers` has the character ranges of the numbers of @group and @binding, `mode` the range of the access
    mode, if it has one. `bound_to` names its tensor or scratch buffer.
    """

    name: str
    element: str
    line: int
    numbers: Mapping[str, tuple[int, int]]
    mode: tuple[int, int] | None
    bound_to: str
    element_bytes: int = 4


@dataclass(frozen=True)
class PlainText:
    """A plain WGSL text and its interface.

    `words` are the members of the uniform, or of the immediates if `immediate`, in order: a size or a scalar
    of the op, and its WGSL type.
    `overrides` are the pipeline-overridable constants: the character range of the declaration, name, type and
    default. `features` are those that the directives name.
    """

    text: str
    variables: tuple[StorageVariable, ...]
    uniform: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    words: tuple[tuple[str, str], ...] = ()
    overrides: tuple[tuple[tuple[int, int], str, str, str], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    immediate: bool = False
    features: frozenset[str] = frozenset()

    def objection(self, op: Op, problem: Problem) -> str | None:
        """Return the reason why the text cannot compute a problem, or None."""
        for one in self.variables:
            tensor = op.named.get(one.bound_to)
            if tensor is not None and tensor.present(problem):
                dtype = tensor.dtype(problem)
                if dtype not in _FITS.get(one.element, ()):
                    return f"{one.name} is an array of {one.element}, but {one.bound_to} is {dtype}"
        absent = [one for one in self.variables if one.bound_to in op.named]
        for one in absent:
            if not op.named[one.bound_to].present(problem):
                return f"{one.name} is bound to {one.bound_to}, which the problem does not have"
        bound = {one.bound_to for one in self.variables}
        for tensor in op.outputs(problem):
            if tensor.name not in bound:
                return f"no variable of the text is bound to {tensor.name}, an output of the problem"
        return None

    def rendered(
        self,
        op: Op,
        indices: Mapping[str, int],
        modes: Mapping[str, str],
        problem: Problem,
        names: Mapping[str, int],
        directives: Collection[str],
    ) -> str:
        """Return the text with a plan's binding numbers and with values for overridable constants.

        `indices` and `modes` map tensors and scratch buffers to binding numbers and access modes. Constants
        that are sizes or scalars get the problem's values. `directives` are the names of features that the
        compiler accepts in directives.
        """
        edits = list(directive_edits(_code(self.text), directives))
        for one in self.variables:
            edits += [(*one.numbers["group"], "0"), (*one.numbers["binding"], str(indices[one.bound_to]))]
            if one.mode is not None:
                edits.append((*one.mode, modes[one.bound_to]))
        if self.uniform:
            edits += [(*self.uniform["group"], "0"), (*self.uniform["binding"], "0")]
            edits.append((*self.uniform["space"], "uniform"))
        # webnorm's buffers have guards, so the length would be too large.
        elements = {
            one.name: (one, op.named[one.bound_to]) for one in self.variables if one.bound_to in op.named
        }
        for found in _LENGTH.finditer(_code(self.text)):
            if found[1] in elements:
                one, tensor = elements[found[1]]
                bytes_ = -(-tensor.data_bytes(problem) // 4) * 4
                edits.append((*found.span(), f"{bytes_ // one.element_bytes}u"))
        values: dict[str, Any] = {**names, **problem.sizes, **problem.scalars}
        for span, name, kind, default in self.overrides:
            given = values.get(self.names.get(name, name))
            if given is not None and kind == "bool":
                given = "true" if given else "false"
            text = default if given is None else str(given)
            edits.append((*span, f"const {name}{f': {kind}' if kind else ''} = {text};"))
        text = self.text
        for begin, end, new in sorted(edits, reverse=True):
            text = text[:begin] + new + text[end:]
        return text


def is_plain(text: str) -> bool:
    """Return whether a text without a header is plain WGSL: it has bindings and no template tags."""
    code = _code(text)
    return "@binding" in code and not _TEMPLATE.search(code)


def reads_grid(text: str) -> bool:
    """Return whether a text can number its workgroups in two dimensions."""
    return _GRID.search(_code(text)) is not None


def immediate_variables(text: str) -> list[tuple[str, int]]:
    """Return the name and the line of each var<immediate>."""
    if "immediate" not in text:
        # Saves the search for comments.
        return []
    code = _code(text)
    return [(one[1], code.count("\n", 0, one.start()) + 1) for one in _IMMEDIATE.finditer(code)]


def subgroup_sizes(text: str, axes: Collection[str] = ()) -> dict[str, str]:
    """Return the entry points with the attribute @subgroup_size, each with its size as an expression."""
    if "@subgroup_size" not in text:
        # Saves the search for comments.
        return {}
    return {name: sizes[0] for name, sizes in _attribute_values(text, _SUBGROUP_SIZE, axes) if sizes}


def entry_points(text: str, axes: Collection[str] = ()) -> dict[str, str]:
    """Return the compute entry points of a text, each with its workgroup size as an expression."""
    return {name: " * ".join(sizes) for name, sizes in _attribute_values(text, _SIZE, axes)}


def _attribute_values(
    text: str, attribute: re.Pattern[str], axes: Collection[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the compute entry points with an attribute, each with the attribute's values.

    The values are expressions of the header's language. Constants of the text are replaced by their values,
    except for those with the name of an axis.
    """
    code = _code(text)
    known = dict(_CONSTANT.findall(code))

    def value(text: str, depth: int = 0) -> str:
        """Translate an expression of constants to the header's language."""
        text = _LITERAL.sub(lambda one: str(int(one[1], 0)), text.strip()).replace("/", "//")
        if depth > 20:
            return text
        return re.sub(
            r"[A-Za-z_]\w*",
            lambda one: (
                f"({value(known[one[0]], depth + 1)})" if one[0] in known and one[0] not in axes else one[0]
            ),
            text,
        )

    for declaration in _DECLARATION_END.split(code):
        function = _FUNCTION.search(declaration)
        attributes = declaration[: function.start()] if function else ""
        found = attribute.search(attributes)
        if function and found and "@compute" in attributes:
            parts = [part.strip() for part in found[1].split(",") if part.strip()]
            yield function[1], [f"({value(part)})" for part in parts]


def read_plain(
    path: Path,
    text: str,
    op: Op,
    names: Mapping[str, str | Sequence[str]],
    scratch: Sequence[str],
    constants: Sequence[str] = (),
) -> PlainText:
    """Return the interface of a plain text for an op.

    Parameters
    ----------
    names
        The [bindings] table: tensors, sizes and scalars for variables and uniform members with other names.
    scratch
        The names of the header's scratch buffers.
    constants
        The names of the header's axes and derived constants.

    Raises
    ------
    WebnormError
        A variable matches no tensor, or a type is not supported. The message includes the line.
    """
    code = _code(text)
    aliases = dict(_ALIAS.findall(code))
    structs = {name: _members(body, aliases) for name, body in _STRUCT.findall(code)}
    used: set[str] = set()
    variables: list[StorageVariable] = []
    uniform: Mapping[str, tuple[int, int]] = {}
    words: tuple[tuple[str, str], ...] = ()
    words_of = partial(_words, path, structs=structs, op=op, names=names, constants=constants, used=used)
    for found in _VARIABLE.finditer(code):
        space, name, kind = found[2], found[4], _without_aliases(found[5], aliases)
        line = code.count("\n", 0, found.start(2)) + 1
        numbers = _numbers(path, line, found)
        numbers_only = kind in structs and structs[kind] and all(of in _LAYOUT for _, of, _ in structs[kind])
        if space == "uniform" or (numbers_only and name not in op.named):
            if uniform:
                raise _second(path, line, "a second uniform")
            # A struct of numbers in storage serves as a uniform.
            last = found.end(3) if found[3] else found.end(2)
            uniform = {**numbers, "space": (found.start(2), last)}
            words = words_of(line, name, kind)
            continue
        used.add(name)
        holds = _bound_tensor(path, line, name, names, [*op.named, *scratch])
        mode = found.span(3) if found[3] else None
        element, width = _element(path, line, kind, structs)
        variables.append(StorageVariable(name, element, line, numbers, mode, holds, width * _BYTES[element]))
    immediate = list(_IMMEDIATE.finditer(code))
    for found in immediate:
        line = code.count("\n", 0, found.start()) + 1
        if uniform or found is not immediate[0]:
            raise _second(path, line, "both a uniform and an immediate" if uniform else "a second immediate")
        words = words_of(line, found[1], _without_aliases(found[2], aliases))
    _check_variables(path, variables, op)
    overrides = tuple((one.span(), one[1], one[2] or "", one[3] or "") for one in _OVERRIDE.finditer(code))
    _check_names(path, code, overrides, op, names, constants, used)
    single = {name: one for name, one in names.items() if isinstance(one, str)}
    return PlainText(
        text, tuple(variables), uniform, words, overrides, single, bool(immediate), declared_features(code)
    )


def _second(path: Path, line: int, what: str) -> WebnormError:
    """Return the error for numbers in two variables."""
    return _error(path, line, f"the text has {what} variable; use one struct for all values")


def _check_names(
    path: Path,
    code: str,
    overrides: Sequence[tuple[tuple[int, int], str, str, str]],
    op: Op,
    names: Mapping[str, str | Sequence[str]],
    constants: Sequence[str],
    used: set[str],
) -> None:
    """Raise WebnormError for an override without a value, and for an unused name of [bindings]."""
    for span, name, _, default in overrides:
        given = names.get(name, name)
        if given in (*op.problem_type.SIZES, *op.problem_type.SCALARS, *constants):
            used.add(name)
        elif not default:
            line = code.count("\n", 0, span[0]) + 1
            raise _error(
                path,
                line,
                f"override {name} is not a size or scalar of {op.name} and has no default; give it a default",
            )
    for name in names.keys() - used:
        raise _error(
            path, 1, f"[bindings] names {name}, which is not a variable, member or override of the text"
        )


def _numbers(path: Path, line: int, found: re.Match[str]) -> dict[str, tuple[int, int]]:
    """Return the character ranges of the numbers of a variable's @group and @binding."""
    numbers = {
        one[1]: (found.start(1) + one.start(2), found.start(1) + one.end(2))
        for one in _NUMBER.finditer(found[1])
    }
    if numbers.keys() != {"group", "binding"}:
        raise _error(path, line, f"{found[4]} lacks @group and @binding with numbers")
    return numbers


def _bound_tensor(
    path: Path, line: int, name: str, names: Mapping[str, str | Sequence[str]], known: Sequence[str]
) -> str:
    """Return the tensor or scratch buffer that a storage variable is bound to."""
    said = names.get(name, name)
    holds = said if isinstance(said, str) else ", ".join(said)
    if holds not in known:
        near = nearest(holds, known)
        hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(known)}"
        raise _error(
            path, line, f"storage variable {name} is not a tensor: {hint}; or name its tensor in [bindings]"
        )
    return holds


def _check_variables(path: Path, variables: Sequence[StorageVariable], op: Op) -> None:
    """Raise WebnormError for a tensor with two variables, and for one without a variable."""
    bound = {one.bound_to for one in variables}
    for tensor in op.tensors:
        if tensor.access == "read" and tensor.option is None and tensor.name not in bound:
            raise _error(
                path,
                1,
                f"no variable of the text is bound to {tensor.name}, an input of {op.name}; bind one in "
                "[bindings]. A kernel that works in place needs separate variables to read and to write.",
            )
    holds = [one.bound_to for one in variables]
    for one in variables:
        if holds.count(one.bound_to) > 1:
            raise _error(path, one.line, f"two storage variables are bound to {one.bound_to}; expected one")
    if not any(op.named[name].access == "read_write" for name in holds if name in op.named):
        outputs = [one.name for one in op.tensors if one.access == "read_write"]
        raise _error(
            path,
            1,
            f"no storage variable is bound to an output of {op.name}; expected one of {', '.join(outputs)}",
        )


# Size and alignment in bytes, components and scalar type of the types that a uniform may contain.
_LAYOUT = {
    **{of: (4, 4, 1, of) for of in ("u32", "i32", "f32")},
    **{
        f"vec{n}<{of}>": (4 * n, 8 if n == 2 else 16, n, of)
        for n in (2, 3, 4)
        for of in ("u32", "i32", "f32")
    },
}


def _words(
    path: Path,
    line: int,
    variable: str,
    kind: str,
    structs: Mapping[str, list[tuple[str, str, str]]],
    op: Op,
    names: Mapping[str, str | Sequence[str]],
    constants: Sequence[str],
    used: set[str],
) -> tuple[tuple[str, str], ...]:
    """Return the words of a variable: names of sizes, scalars and constants, "" where nothing reads one."""
    members = structs.get(kind, [(variable, kind, "")])
    found: list[tuple[str, str]] = []
    widest = 1
    for member, of, attributes in members:
        if of not in _LAYOUT:
            raise _error(path, line, f"{member} is {of}; expected u32, i32 or f32, or a vector of them")
        size, align, width, scalar = _LAYOUT[of]
        if given := re.search(r"@align\s*\(\s*(\d+)", attributes):
            align = int(given[1])
        if given := re.search(r"@size\s*\(\s*(\d+)", attributes):
            size = int(given[1])
        widest = max(widest, align // 4)
        found += [("", "u32")] * (-len(found) % (align // 4))
        end = len(found) + size // 4
        used.add(member)
        said = names.get(member, member)
        parts = [said] if isinstance(said, str) else list(said)
        if isinstance(said, str) and member not in names and member.startswith("_"):
            parts = [""] * width
        if len(parts) != width:
            raise _error(
                path, line, f"{member} is {of}; [bindings] has {len(parts)} names for it, expected {width}"
            )
        where = f"member {member} of {kind}" if kind in structs else f"variable {member}"
        found += [(_word(path, line, where, name, scalar, op, constants), scalar) for name in parts]
        found += [("", "u32")] * (end - len(found))
    # The size of a struct is a multiple of its alignment.
    return (*found, *[("", "u32")] * (-len(found) % widest))


def _word(path: Path, line: int, where: str, name: str, of: str, op: Op, constants: Sequence[str]) -> str:
    """Return the name of one word of the uniform in a schedule."""
    sizes, scalars = op.problem_type.SIZES, op.problem_type.SCALARS
    known = [*sizes, *scalars, *constants]
    if not name:
        return ""
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(known)}"
        raise _error(
            path,
            line,
            f"{where} is not a size or scalar: {hint}; name its value in [bindings], or compute it in "
            f'[derive], such as {name} = "{next(iter(sizes))} // 4"',
        )
    if name in scalars:
        wanted = "u32 or i32" if scalars[name].whole else "f32"
        if of not in wanted.split(" or "):
            raise _error(path, line, f"{where} is {of}; expected {wanted} for {name}")
        return name
    return f"f32 {name}" if of == "f32" else name


def _without_aliases(kind: str, aliases: Mapping[str, str]) -> str:
    for _ in range(len(aliases)):
        kind = re.sub(r"[A-Za-z_]\w*", lambda one: aliases.get(one[0], one[0]), kind)
    kind = re.sub(r"\s+", "", kind)
    return re.sub(r"\bvec([234])([fiuh])\b", lambda one: f"vec{one[1]}<{_VECTORS[one[2]]}>", kind)


def _members(body: str, aliases: Mapping[str, str]) -> list[tuple[str, str, str]]:
    found = []
    # A comma inside <> is part of a type, and one inside () is part of an attribute.
    for part in re.split(r"[,;](?![^<]*>)(?![^(]*\))", body):
        member = _MEMBER.search(part.strip())
        if member:
            found.append((member[2], _without_aliases(member[3], aliases), member[1]))
    return found


def _element(
    path: Path, line: int, kind: str, structs: Mapping[str, list[tuple[str, str, str]]]
) -> tuple[str, int]:
    """Return the scalar type of a storage variable's array, and the scalars per element."""
    if kind in structs and len(structs[kind]) == 1:
        # Older WGSL wraps the array in a struct.
        kind = structs[kind][0][1]
    if re.fullmatch(r"buffer(?:<\w+>)?", kind):
        return "buffer", 1
    found = re.fullmatch(r"(?:array<)?(?:vec([234])<|atomic<)?(\w+?)>?(?:,\w+)?>?", kind)
    if found is None or found[2] not in _FITS:
        raise _error(path, line, f"the type {kind} is not an array of f32, f16, i32 or u32, or a buffer")
    width = int(found[1] or 1)
    return found[2], 4 if width == 3 else width


def _code(text: str) -> str:
    """Replace comments by blanks, so that positions stay the same."""
    try:
        return without_comments(text)
    except UnterminatedComment:
        return text


def _error(path: Path, line: int, message: str) -> WebnormError:
    return WebnormError(f"{path}:{line}: {message}", SourceLocation(str(path), line))
