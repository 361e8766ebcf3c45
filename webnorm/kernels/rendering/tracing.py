"""Traces: `{{ trace("mean") }}` in a kernel records a value if tracing is on, else it renders to nothing.

The call renders to a block whose names encode the expression, so that the text contains all information:

    { let traced_at_6d65616e: traced_at_6d65616e_type = mean; traced_at_6d65616e_put(...); }

`with_trace` numbers the blocks and adds the functions that they call. Only the compiler knows the type of a
value: its error for a `let` of another type contains it, see `with_types`.

A filter selects the records to keep. It is a condition of `row`, `invocation` and `workgroup`, in the
header's language or in WGSL's syntax. The user's text is parsed and the condition is generated from its tree,
so that no part of the text is copied into the shader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError, check_kind, shown
from webnorm.kernels.wgsl.tokens import CannotInstrument, TokenizedShader, entry_point
from webnorm.op import expression
from webnorm.op.expression import Tree

# The names in filters. A row is an element of the batch.
NAMES = ("row", "invocation", "workgroup")
MOST_FILTER, MOST_NUMBERS = 500, 16
# Numbers are compared as i32, so that negative intermediate values do not wrap around.
_LARGEST = 2**31 - 1
_FILTER_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+)[ui]?\b|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>&&|\|\||==|!=|<=|>=|//|[-!<>+*/%(),]))",
    re.ASCII,
)
# WGSL's operators -> operators of the header's language.
_SPELLED = {"&&": "and", "||": "or", "!": "not", "/": "//"}
_COMPARES = ("==", "!=", "<", "<=", ">", ">=")
_CALLS = {"//": "traced_div", "%": "traced_mod", "ceil_div": "traced_ceil_div", "min": "min", "max": "max"}
_DIVISIONS = ("//", "%", "ceil_div")

Origin = tuple[str, int]

EXAMPLE = '{{ trace("mean") }}'
MOST_RECORDS = 4096
# A record has 9 words: site, workgroup, invocation, row, the first column of a step, and four for the value.
# The buffer begins with the number of records and the filter's numbers.
WORDS, HEAD = 9, 1 + MOST_NUMBERS
NO_ROW = 0xFFFFFFFF
MOST_EXPRESSION, MOST_SITES = 200, 256
_UNFIT = re.compile(r"[;{}]|//|/\*")
_BRACKETS = {")": "(", "]": "["}
_UNNUMBERED = re.compile(r"\btraced_at_((?:[0-9a-f]{2})+)")
_UNNUMBERED_BLOCK = re.compile(r"(\{ let traced_at_[^{}]*\})")
_BLOCK = re.compile(r"\{ let (traced_([0-9]+)_((?:[0-9a-f]{2})+)): ")
_DECLARED = re.compile(r"^alias (traced_([0-9]+)_[0-9a-f]+)_type = .*$", re.MULTILINE)
_TYPE = re.compile(r"(?:vec([234])<(f32|f16|i32|u32|bool)>)|(f32|f16|i32|u32|bool)")
_LIBRARY = Path(__file__).with_suffix(".wgsl")


@dataclass(frozen=True)
class TraceFilter:
    """A condition as a WGSL expression; tracing.wgsl has the functions that it calls.

    The shader reads `numbers` from its buffer, so that another row needs no new compilation.
    """

    condition: str
    numbers: tuple[int, ...]


def parse_filter(text: str) -> TraceFilter:
    """Parse a filter; an empty text keeps all records.

    A filter that names the row keeps no record whose row is unknown. Raises WebnormError for an invalid or
    too long condition.
    """
    check_kind("filter", text, str)
    if len(text) > MOST_FILTER:
        raise WebnormError(f"filter has {len(text)} characters; the limit is {MOST_FILTER}")
    if not text.strip():
        return TraceFilter("true", ())
    try:
        tree = expression.parse(_spelled(text.strip()))
        expression.check_names(tree, NAMES, text)
        written = _Written(expression.simplify(tree, {}))
    except WebnormError as error:
        raise WebnormError(f"filter {shown(text)}: {error}") from error
    known = "traced_row != traced_no_row && " if "row" in expression.names(tree) else ""
    return TraceFilter(known + written.text, tuple(written.numbers))


def _spelled(text: str) -> str:
    """Translate a filter to the header's language."""
    words, at = list[str](), 0
    while at < len(text):
        found = _FILTER_TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise WebnormError(
                f"unexpected {shown(text[at:].strip()[:1])}; expected a condition of {', '.join(NAMES)}, "
                "such as row == 3 && invocation < 2"
            )
        word = found[found.lastgroup]
        if word == "!" and text[found.end() :].lstrip()[:1] not in ("(", "!"):
            # WGSL's `!` binds more tightly than the header's `not`.
            raise WebnormError("! needs brackets after it, as in !(row == 3)")
        words.append(_SPELLED.get(word, word))
        at = found.end()
    return " ".join(words)


class _Written:
    """The WGSL text of a tree, and the numbers that it reads."""

    def __init__(self, tree: Tree) -> None:
        self.numbers: list[int] = []
        self.text = self._truth(tree)

    def _truth(self, tree: Tree) -> str:
        match tree:
            case int():
                return "true" if tree else "false"
            case [("and" | "or") as operator, left, right]:
                return f"({self._truth(left)} {'&&' if operator == 'and' else '||'} {self._truth(right)})"
            case ["if", test, yes, no]:
                return f"select({self._truth(no)}, {self._truth(yes)}, {self._truth(test)})"
            case [operator, left, right] if operator in _COMPARES:
                return f"({self._number(left)} {operator} {self._number(right)})"
        return f"({self._number(tree)} != 0)"

    def _number(self, tree: Tree) -> str:
        match tree:
            case int():
                return self._read(tree)
            case str():
                return f"i32(traced_{tree})"
            case ["if", test, yes, no]:
                return f"select({self._number(no)}, {self._number(yes)}, {self._truth(test)})"
            case [("+" | "-" | "*") as operator, left, right]:
                return f"({self._number(left)} {operator} {self._number(right)})"
            case [operator, first, *others] if operator in _CALLS:
                if operator in _DIVISIONS and not (isinstance(others[0], int) and others[0] > 0):
                    raise WebnormError(f"{expression.shown(tree)}: the divisor must be a number above 0")
                written = self._number(first)
                for other in others:
                    written = f"{_CALLS[operator]}({written}, {self._number(other)})"
                return written
        raise WebnormError(f"{expression.shown(tree)} is true or false; expected a number")

    def _read(self, number: int) -> str:
        if abs(number) > _LARGEST:
            raise WebnormError(f"{number} is too large; the limit is {_LARGEST}")
        if len(self.numbers) == MOST_NUMBERS:
            raise WebnormError(f"it has more than {MOST_NUMBERS} numbers; use fewer")
        self.numbers.append(number)
        return f"traced_records.numbers[{len(self.numbers) - 1}]"


@dataclass(frozen=True)
class TraceTag:
    """A trace in a rendered text: its expression, its step, and its place in the template.

    `variable` is the name of the `let` that has the value.
    """

    name: str
    step: str
    origin: Origin
    variable: str


@dataclass(frozen=True)
class TraceType:
    """A type that can be traced: 1 to 4 scalars of f32, f16, i32, u32 or bool."""

    count: int
    scalar: str

    @classmethod
    def of(cls, name: str) -> TraceType | None:
        """Parse the name of a type; None unless it is a scalar or a vector."""
        # Numbers without a suffix have abstract types.
        found = _TYPE.fullmatch(name.replace("{AbstractInt}", "i32").replace("{AbstractFloat}", "f32"))
        return cls(int(found[1] or 1), found[2] or found[3]) if found else None

    def __str__(self) -> str:
        return self._vector(self.scalar)

    def _vector(self, scalar: str) -> str:
        return scalar if self.count == 1 else f"vec{self.count}<{scalar}>"

    @property
    def words(self) -> str:
        """A WGSL expression that converts `value` to four words."""
        unsigned = self._vector("u32")
        words = {
            "u32": "value",
            "bool": f"select({unsigned}(0u), {unsigned}(1u), value)",
            "f16": f"bitcast<{unsigned}>({self._vector('f32')}(value))",
        }.get(self.scalar, f"bitcast<{unsigned}>(value)")
        return f"vec4<u32>({words}{', 0u' * (4 - self.count)})"


FLOAT = TraceType(1, "f32")


def tag(context: Mapping[str, Any]) -> Callable[..., str]:
    """Return the function `trace` for a template that is rendered with a context."""
    tracing = context.get("tracing", False)

    def trace(expression: object, step: object = "") -> str:
        written = _checked(expression)
        # A number comes from a loop of the template.
        place = f"{step}u" if isinstance(step, int) else _checked(step) if step != "" else ""
        name = f"traced_at_{chr(10).join((written, place)).encode().hex()}"
        column = f"traced_column({place}, thread)" if place else "0u"
        block = f"{{ let {name}: {name}_type = {written}; {name}_put({name}, {column}); }}"
        return block if tracing else ""

    return trace


def _checked(expression: object) -> str:
    """Return an expression on one line. Raises ValueError for text that could end the statement."""
    if not isinstance(expression, str):
        raise ValueError(
            f"trace() got {shown(expression)}; expected the text of an expression, as in {EXAMPLE}"
        )
    written = " ".join(expression.split())
    if not written or len(written) > MOST_EXPRESSION or not _closed(written) or _UNFIT.search(written):
        raise ValueError(
            f"cannot trace {shown(expression)}; expected an expression of at most {MOST_EXPRESSION} "
            f"characters, as in {EXAMPLE}"
        )
    return written


def _closed(text: str) -> bool:
    """Return whether all brackets match."""
    opened: list[str] = []
    for mark in re.findall(r"[][()]", text):
        if mark not in _BRACKETS:
            opened.append(mark)
        elif not opened or opened.pop() != _BRACKETS[mark]:
            return False
    return not opened


def with_trace(
    text: str, origins: Sequence[Origin], wanted: str, binding: int, entry_points: Sequence[str]
) -> tuple[str, tuple[Origin, ...]]:
    """Add the trace functions and their buffer, a binding of group 0, to a text rendered with tracing.

    All values are declared as f32. Each trace gets its own line, and comments are removed. `wanted` is the
    WGSL condition for the records to keep.

    Raises WebnormError for too many traces, or if an entry point is not understood.
    """
    parts = list(_numbered(_with_invocations(text, entry_points, origins), origins))
    lines, places = [line for line, _ in parts], [origin for _, origin in parts]
    found = trace_tags("\n".join(lines), places)
    lines += [
        f"@group(0) @binding({binding}) var<storage, read_write> traced_records: TracedRecords;",
        f"const traced_most = {MOST_RECORDS}u;",
        f"const traced_numbers = {MOST_NUMBERS}u;",
        f"fn traced_wanted() -> bool {{ return {wanted}; }}",
        *(_declaration(site.variable, number, FLOAT) for number, site in enumerate(found)),
        *_LIBRARY.read_text(encoding="utf-8").splitlines(),
    ]
    added = (f"{_LIBRARY.parent.name}/{_LIBRARY.name}", 1)
    return "\n".join((*lines, "")), (*places, *[added] * (len(lines) - len(places)))


def _numbered(text: str, origins: Sequence[Origin]) -> Iterator[tuple[str, Origin]]:
    """Yield the lines and their origins, with a number for each expression at each place."""
    numbers: dict[tuple[str, Origin], int] = {}
    for line, origin in zip(text.splitlines(), origins, strict=True):

        def numbered(found: re.Match[str], origin: Origin = origin) -> str:
            return f"traced_{numbers.setdefault((found[1], origin), len(numbers))}_{found[1]}"

        for part in _UNNUMBERED_BLOCK.split(line):
            if part.strip():
                yield _UNNUMBERED.sub(numbered, part), origin
        if len(numbers) > MOST_SITES:
            raise WebnormError(
                f"{origin[0]}:{origin[1]}: the text has more than {MOST_SITES} traces; remove some"
            )


def _with_invocations(text: str, entry_points: Sequence[str], origins: Sequence[Origin]) -> str:
    """Add code to the entry points that stores the numbers of workgroup and invocation."""
    try:
        code = TokenizedShader(text)
        changes = dict[int, str]()
        for name in entry_points:
            found = entry_point(code, name, "traced_")
            changes.update(found.changes)
            changes[found.body] = f"{{ traced_workgroup = {found.group}; traced_invocation = {found.index};"
        return code.changed(changes)
    except CannotInstrument as error:
        raise WebnormError(f"{origins[0][0]}: cannot trace this text: {error}") from error


def _declaration(variable: str, number: int, kind: TraceType) -> str:
    """Return the line that declares a trace's type and function."""
    put = f"fn {variable}_put(value: {variable}_type, column: u32)"
    return f"alias {variable}_type = {kind}; {put} {{ traced_put({number}u, column, {kind.words}); }}"


def trace_tags(text: str, origins: Sequence[Origin]) -> tuple[TraceTag, ...]:
    """Return the traces in a text from `with_trace`, by their numbers, which follow the text."""
    found: dict[int, TraceTag] = {}
    for line, origin in zip(text.splitlines(), origins, strict=True):
        for variable, number, spelled in _BLOCK.findall(line):
            name, _, step = bytes.fromhex(spelled).decode().partition("\n")
            found.setdefault(int(number), TraceTag(name, step, origin, variable))
    return tuple(found[number] for number in sorted(found))


def with_types(text: str, kinds: Mapping[str, TraceType]) -> str:
    """Return the text with other types for some variables."""

    def declared(found: re.Match[str]) -> str:
        kind = kinds.get(found[1])
        return _declaration(found[1], int(found[2]), kind) if kind else found[0]

    return _DECLARED.sub(declared, text)
