"""Which records a trace keeps: a condition of `row`, `invocation` and `workgroup`, as text for WGSL.

It is written in the header's language or in WGSL's spelling. Nothing of what was written is handed on: the
condition is made from the tree that was read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from webnorm.errors import WebnormError, check_kind, shown
from webnorm.op import expression
from webnorm.op.expression import Tree

NAMES = ("row", "invocation", "workgroup")
MOST_FILTER, MOST_NUMBERS = 500, 16
# Numbers are compared as i32, so that what lies below 0 on the way is no large number.
_LARGEST = 2**31 - 1
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+)[ui]?\b|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>&&|\|\||==|!=|<=|>=|//|[-!<>+*/%(),]))",
    re.ASCII,
)
# WGSL's spelling to the header's.
_SPELLED = {"&&": "and", "||": "or", "!": "not", "/": "//"}
_COMPARES = ("==", "!=", "<", "<=", ">", ">=")
_CALLS = {"//": "traced_div", "%": "traced_mod", "ceil_div": "traced_ceil_div", "min": "min", "max": "max"}
_DIVISIONS = ("//", "%", "ceil_div")


@dataclass(frozen=True)
class TraceFilter:
    """A condition as an expression of WGSL; see tracing.wgsl for what it calls.

    `numbers` are those in it, which the shader reads from its buffer: a compiler need not see another row.
    """

    condition: str
    numbers: tuple[int, ...]


def parse_filter(text: str) -> TraceFilter:
    """The filter that a text describes, one that keeps everything for an empty one.

    One that names the row keeps nothing where the row is not known. Raises WebnormError for what is no
    condition, or too long.
    """
    check_kind("filter", text, str)
    if len(text) > MOST_FILTER:
        raise WebnormError(f"filter has {len(text)} characters; expected at most {MOST_FILTER}")
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
    """The text in the header's language."""
    words, at = list[str](), 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise WebnormError(
                f"unexpected {shown(text[at:].strip()[:1])}; expected a condition of {', '.join(NAMES)}, "
                "such as row == 3 && invocation < 2"
            )
        word = found[found.lastgroup]
        if word == "!" and text[found.end() :].lstrip()[:1] not in ("(", "!"):
            # WGSL's binds more tightly than the header's `not`.
            raise WebnormError("! stands before brackets, as in !(row == 3)")
        words.append(_SPELLED.get(word, word))
        at = found.end()
    return " ".join(words)


class _Written:
    """A tree as text, and the numbers that it reads."""

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
                    raise WebnormError(f"{expression.shown(tree)}: the divisor is no number above 0")
                written = self._number(first)
                for other in others:
                    written = f"{_CALLS[operator]}({written}, {self._number(other)})"
                return written
        raise WebnormError(f"{expression.shown(tree)} is true or false; expected a number")

    def _read(self, number: int) -> str:
        if abs(number) > _LARGEST:
            raise WebnormError(f"{number} is too large; expected at most {_LARGEST}")
        if len(self.numbers) == MOST_NUMBERS:
            raise WebnormError(f"it has more than {MOST_NUMBERS} numbers")
        self.numbers.append(number)
        return f"traced_records.numbers[{len(self.numbers) - 1}]"
