"""The expression language of kernel headers: integer expressions, stored as JSON trees.

Jinja's parser reads the text, so there is no second grammar to learn. The result is a tree of plain lists,
strings and integers. Python evaluates it here, and other languages can evaluate the same JSON:

    7  ->  7          rows  ->  "rows"          rows + 1  ->  ["+", "rows", 1]

Truth values are 1 and 0. `//` rounds down and `%` takes the sign of the divisor, as in Python.

A header may come from anyone, so expressions and their values are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, reduce
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.parser import Parser

from webnorm.errors import WebnormError, listing, nearest, sentence, unknown

Tree = int | str | list[Any]
# At least four times the needs of webnorm's own headers.
MOST_TEXT, MOST_PARTS, MOST_DEPTH = 2000, 400, 50
# Far above every count of a problem or an adapter.
LARGEST = 2**63
# Characters of a text or of a tree in a message.
_QUOTED = 120


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "ceil_div": _ceil_div}
_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
}
_OPERATORS: Mapping[str, Callable[..., int]] = {**FUNCTIONS, **_BINARY}
# Operators that evaluate a later operand only if an earlier one requires it.
_LAZY = ("if", "and", "or")
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
# Names for parts of Jinja's language that headers lack; other parts keep the name of Jinja's node.
_NOT_IN_LANGUAGE = {
    "Call": "a call of an expression, or with named arguments,",
    "Concat": "~",
    "Const": "a constant other than an integer",
    "Div": "/ (use // for whole quotients)",
    "Filter": "a filter (|)",
    "Getattr": "an attribute (a.b)",
    "Getitem": "an index (a[b])",
    "Pow": "**",
    "TemplateData": "text",
    "Test": "a test (is)",
}
_environment = Environment()


def parse(text: str | int) -> Tree:
    """Parse one expression; raise a WebnormError that quotes it if it is invalid or too large."""
    return _bounded(int(text), text) if isinstance(text, int) else _parsed(text)


# webnorm's headers have 488 expressions, but only 115 different ones: kernels share layouts and files.
@lru_cache(maxsize=512)
def _parsed(text: str) -> Tree:
    quoted = repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}...")
    if len(text) > MOST_TEXT:
        raise WebnormError(f"expression {quoted} has {len(text)} characters; expected at most {MOST_TEXT}")
    try:
        parser = Parser(_environment, text, state="variable")
        node = parser.parse_expression()
        if not parser.stream.eos:
            found = sentence(repr(parser.stream.current.value), _QUOTED)
            raise WebnormError(f"unexpected {found} in expression {quoted}")
        tree = _tree(node, quoted)
    except TemplateError as error:
        raise WebnormError(f"expression {quoted}: {sentence(str(error.message), _QUOTED)}") from error
    except RecursionError as error:
        raise WebnormError(f"expression {quoted} is nested too deeply") from error
    count, depth = _measures(tree)
    if count > MOST_PARTS or depth > MOST_DEPTH:
        raise WebnormError(
            f"expression {quoted} is too large: expected at most {MOST_PARTS} numbers, names and operators, "
            f"nested at most {MOST_DEPTH} deep"
        )
    return tree


def size(tree: Tree) -> int:
    """Return the number of parts of a tree: numbers, names and operators."""
    return 1 + sum(map(size, tree[1:])) if isinstance(tree, list) else 1


def _measures(tree: Tree) -> tuple[int, int]:
    """Return the number of parts of a tree, and its depth. Both stop counting beyond their bounds.

    A chained comparison contains its middle twice, so a tree can be much larger than its text.
    """
    count = deepest = 0
    waiting = [(tree, 1)]
    while waiting and count <= MOST_PARTS and deepest <= MOST_DEPTH:
        part, depth = waiting.pop()
        count, deepest = count + 1, max(deepest, depth)
        if isinstance(part, list):
            waiting += [(child, depth + 1) for child in part[1:]]
    return count, deepest


def _bounded(value: int, what: object) -> int:
    if -LARGEST <= value <= LARGEST:
        return value
    described = str(what) if not isinstance(what, int) else f"a number of {what.bit_length()} bits"
    raise WebnormError(f"{described} is larger than 2**63, the largest number of expressions")


def shown(tree: Tree) -> str:
    """Return the tree in the notation of headers, cut short, for messages."""
    text = _shown(tree)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def _shown(tree: Tree) -> str:
    if not isinstance(tree, list):
        return str(tree)
    operator, *operands = tree
    if operator in FUNCTIONS:
        return f"{operator}({', '.join(map(_shown, operands))})"
    simple = [not isinstance(part, list) or part[0] in FUNCTIONS for part in operands]
    parts = [
        _shown(part) if alone else f"({_shown(part)})" for part, alone in zip(operands, simple, strict=True)
    ]
    return f"{parts[1]} if {parts[0]} else {parts[2]}" if operator == "if" else f" {operator} ".join(parts)


def _tree(node: nodes.Node, quoted: str) -> Tree:
    def sub(child: nodes.Node) -> Tree:
        return _tree(child, quoted)

    match node:
        case nodes.Const(value=bool() | int()):
            return _bounded(int(node.value), int(node.value))
        case nodes.Name():
            return str(node.name)
        case nodes.Neg():
            return ["-", 0, sub(node.node)]
        case nodes.Not():
            return ["if", sub(node.node), 0, 1]
        case nodes.And():
            return ["and", sub(node.left), sub(node.right)]
        case nodes.Or():
            return ["or", sub(node.left), sub(node.right)]
        case nodes.CondExpr() if node.expr2 is not None:
            return ["if", sub(node.test), sub(node.expr1), sub(node.expr2)]
        case nodes.Compare():
            return _comparison(node, quoted)
        case nodes.Call(node=nodes.Name(name=name), kwargs=[], dyn_args=None, dyn_kwargs=None) if (
            name in FUNCTIONS
        ):
            if len(node.args) < 2 or (name == "ceil_div" and len(node.args) > 2):
                or_more = "" if name == "ceil_div" else " or more"
                raise WebnormError(f"expression {quoted}: {name} takes 2 arguments{or_more}")
            return [name, *(sub(argument) for argument in node.args)]
        case nodes.Add() | nodes.Sub() | nodes.Mul() | nodes.FloorDiv() | nodes.Mod():
            return [node.operator, sub(node.left), sub(node.right)]
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name not in FUNCTIONS:
        name = sentence(node.node.name, _QUOTED)
        raise unknown("function", name, FUNCTIONS, problem=f"expression {quoted}: unknown function {name!r}")
    found = _NOT_IN_LANGUAGE.get(type(node).__name__, type(node).__name__)
    raise WebnormError(
        f"expression {quoted}: {found} is not part of the language; expected integers, names, "
        "+ - * // %, comparisons, and, or, not, if-else, min, max, ceil_div"
    )


def _comparison(node: nodes.Compare, quoted: str) -> Tree:
    """Return a conjunction of the comparisons of neighbours."""
    if any(operand.op not in _COMPARISONS for operand in node.ops):
        raise WebnormError(f"expression {quoted}: expected one of the comparisons == != < <= > >=")
    terms = [_tree(node.expr, quoted), *(_tree(operand.expr, quoted) for operand in node.ops)]
    pairs: list[Tree] = [
        [_COMPARISONS[operand.op], terms[index], terms[index + 1]] for index, operand in enumerate(node.ops)
    ]
    return reduce(lambda tree, pair: ["and", tree, pair], pairs)


def names(tree: Tree) -> frozenset[str]:
    """Return every name that the tree looks up."""
    if isinstance(tree, str):
        return frozenset({tree})
    if isinstance(tree, int):
        return frozenset()
    return frozenset().union(*(names(child) for child in tree[1:]))


def check_names(tree: Tree, known: Collection[str], text: object) -> None:
    """Raise WebnormError for the first unknown name."""
    for name in sorted(names(tree)):
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"expected one of {listing(sorted(known))}"
            raise WebnormError(
                f"unknown name {sentence(name, 60)!r} in {sentence(str(text), _QUOTED)!r}; {hint}"
            )


def simplify(tree: Tree, values: Mapping[str, int]) -> Tree:
    """Evaluate every part of the tree whose names all have a value; raise the errors of `evaluate`."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        # A NumPy integer becomes a Python int.
        return int(values[tree]) if tree in values else tree
    operator, first, *rest = tree
    left = simplify(first, values)
    if operator in _LAZY and isinstance(left, int):
        decided: dict[str, Tree] = {"if": rest[0] if left else rest[-1], "and": rest[0] if left else left}
        return simplify(decided.get(operator, left if left else rest[0]), values)
    operands = [left, *(simplify(operand, values) for operand in rest)]
    if operator in _LAZY or not all(isinstance(operand, int) for operand in operands):
        return [operator, *operands]
    try:
        value = _OPERATORS[operator](*operands)
    except ZeroDivisionError as error:
        raise _divided(tree) from error
    return value if -LARGEST <= value <= LARGEST else _bounded(value, shown(tree))


def constant(tree: Tree) -> int | None:
    """Return the value that a tree has for all values of its names; None if it has none, or an error."""
    try:
        value = simplify(tree, {})
    except WebnormError:
        return None
    return value if isinstance(value, int) else None


def evaluate(tree: Tree, values: Mapping[str, int]) -> int:
    """Return the value of the tree.

    Raises
    ------
    WebnormError
        A name is unknown, a division is by zero, or a value is too large.
    """
    try:
        return _value(tree, values)
    except KeyError:
        unknown = min(names(simplify(tree, values)))
        raise WebnormError(f"unknown name {unknown!r} in an expression") from None


def _value(tree: Tree, values: Mapping[str, int]) -> int:
    """Evaluate a tree without building the trees of `simplify`; raise KeyError for an unknown name."""
    if isinstance(tree, str):
        return int(values[tree])
    if isinstance(tree, int):
        return int(tree)
    operator = tree[0]
    if operator in _LAZY:
        left = _value(tree[1], values)
        if operator == "if":
            return _value(tree[2] if left else tree[3], values)
        return _value(tree[2], values) if bool(left) == (operator == "and") else left
    try:
        value = _OPERATORS[operator](*[_value(operand, values) for operand in tree[1:]])
    except ZeroDivisionError as error:
        raise _divided(tree) from error
    return value if -LARGEST <= value <= LARGEST else _bounded(value, shown(tree))


def _divided(tree: Tree) -> WebnormError:
    return WebnormError(f"division by zero in {shown(tree)}")
