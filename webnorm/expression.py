"""The little language of kernel headers: integer expressions kept as JSON trees.

Jinja's own parser reads the text, so there is no second grammar to learn; what comes out is a tree
of plain lists, strings and integers that Python evaluates here and that another language can
evaluate from the same JSON:

    7  ->  7          rows  ->  "rows"          rows + 1  ->  ["+", "rows", 1]

Truth values are 1 and 0. `//` rounds down and `%` takes the sign of the divisor, as in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.parser import Parser

from webnorm.errors import WebnormError

Tree = int | str | list[Any]


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


_FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "ceil_div": _ceil_div}
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
_OPERATORS: Mapping[str, Callable[..., int]] = {**_FUNCTIONS, **_BINARY}
# Operators that look at a later operand only where an earlier one says so.
_LAZY = ("if", "and", "or")
_NODE_OPERATORS: Mapping[type[nodes.Node], str] = {
    nodes.Add: "+",
    nodes.Sub: "-",
    nodes.Mul: "*",
    nodes.FloorDiv: "//",
    nodes.Mod: "%",
}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
_environment = Environment()


def parse(text: str | int) -> Tree:
    """Parse one expression; raises WebnormError that quotes it when it is not of the language."""
    if isinstance(text, int):
        return int(text)
    try:
        parser = Parser(_environment, text, state="variable")
        node = parser.parse_expression()
        if not parser.stream.eos:
            raise WebnormError(f"unexpected {parser.stream.current.value!r} in expression {text!r}")
    except TemplateError as error:
        raise WebnormError(f"expression {text!r}: {error.message}") from error
    return _tree(node, text)


def _tree(node: nodes.Node, text: str) -> Tree:
    def sub(child: nodes.Node) -> Tree:
        return _tree(child, text)

    match node:
        case nodes.Const(value=bool() | int()):
            return int(node.value)
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
            if any(operand.op not in _COMPARISONS for operand in node.ops):
                raise WebnormError(f"expression {text!r}: only == != < <= > >= compare")
            terms = [sub(node.expr), *(sub(operand.expr) for operand in node.ops)]
            tree: Tree | None = None
            for index, operand in enumerate(node.ops):
                pair: Tree = [_COMPARISONS[operand.op], terms[index], terms[index + 1]]
                tree = pair if tree is None else ["and", tree, pair]
            assert tree is not None
            return tree
        case nodes.Call(node=nodes.Name(name=name), kwargs=[], dyn_args=None, dyn_kwargs=None) if (
            name in _FUNCTIONS
        ):
            if len(node.args) < 2 or (name == "ceil_div" and len(node.args) > 2):
                or_more = "" if name == "ceil_div" else " or more"
                raise WebnormError(f"expression {text!r}: {name} takes 2 arguments{or_more}")
            return [name, *(sub(argument) for argument in node.args)]
        case nodes.Add() | nodes.Sub() | nodes.Mul() | nodes.FloorDiv() | nodes.Mod():
            return [_NODE_OPERATORS[type(node)], sub(node.left), sub(node.right)]
    raise WebnormError(
        f"expression {text!r}: {type(node).__name__} is not part of the language (integers, names, "
        "+ - * // %, comparisons, and, or, not, if-else, min, max, ceil_div)"
    )


def names(tree: Tree) -> frozenset[str]:
    """Every name that the tree looks up."""
    if isinstance(tree, str):
        return frozenset({tree})
    if isinstance(tree, int):
        return frozenset()
    return frozenset().union(*(names(child) for child in tree[1:]))


def check_names(tree: Tree, known: Collection[str], text: object) -> None:
    """Raise WebnormError for the first name that is not known."""
    for name in sorted(names(tree)):
        if name not in known:
            raise WebnormError(f"unknown name {name!r} in {text!r}; known: {', '.join(sorted(known))}")


def simplify(tree: Tree, values: Mapping[str, Tree]) -> Tree:
    """The tree with every part worked out whose names all have a value; raises as `evaluate` does.

    A name may also stand for a tree, which takes its place.
    """
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values.get(tree, tree)
    operator, first, *rest = tree
    left = simplify(first, values)
    if operator in _LAZY and isinstance(left, int):
        decided: dict[str, Tree] = {"if": rest[0] if left else rest[-1], "and": rest[0] if left else left}
        return simplify(decided.get(operator, left if left else rest[0]), values)
    operands = [left, *(simplify(operand, values) for operand in rest)]
    if all(isinstance(operand, int) for operand in operands):
        return evaluate([operator, *operands], {})
    return [operator, *operands]


def evaluate(tree: Tree, values: Mapping[str, int]) -> int:
    """The tree's value; raises WebnormError for an unknown name or a division by zero."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        if tree not in values:
            raise WebnormError(f"unknown name {tree!r} in an expression")
        return int(values[tree])
    operator, *operands = tree
    match operator:
        case "if":
            return evaluate(operands[1] if evaluate(operands[0], values) else operands[2], values)
        case "and":
            return evaluate(operands[0], values) and evaluate(operands[1], values)
        case "or":
            return evaluate(operands[0], values) or evaluate(operands[1], values)
    arguments = [evaluate(operand, values) for operand in operands]
    try:
        return _OPERATORS[operator](*arguments)
    except ZeroDivisionError as error:
        raise WebnormError(f"division by zero in {tree!r}") from error
