from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webnorm.errors import WebnormError
from webnorm.op.expression import LARGEST, check_names, evaluate, names, parse, shown, simplify

VALUES = {"rows": 7, "cols": 768, "a": 3, "b": 0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("7 - 2 - 1", 4),
        ("ceil_div(cols, 512)", 2),
        ("ceil_div(512, 512)", 1),
        ("min(a, rows, 2)", 2),
        ("max(a, rows)", 7),
        ("a if b else rows", 7),
        ("1 if 0 < a <= 3 else 2", 1),
        ("1 < a < 3", 0),
        ("5 < a < 9", 0),
        ("1 if b else 2 if a else 3", 2),
        ("a or b and 0", 3),
        ("not a == b", 1),
        ("-a % 2 + 1", 2),
        ("not a", 0),
        ("a and b", 0),
        ("b or a", 3),
        ("true", 1),
        ("cols % 4 == 0", 1),
        ("a != 3", 0),
    ],
)
def test_value(text: str, value: int) -> None:
    tree = parse(text)
    assert evaluate(tree, VALUES) == value
    assert evaluate(json.loads(json.dumps(tree)), VALUES) == value


@pytest.mark.parametrize(
    "text",
    [
        "1 +",
        "a b",
        "a.b",
        "a[0]",
        "'text'",
        "1.5",
        "a / b",
        "a ** 2",
        "foo(1)",
        "ceil_div(1)",
        "ceil_div(1, 2, 3)",
        "min(a)",
        "max()",
        "min(1, *a)",
        "min(1, **a)",
        "min(1, a, b=2)",
        "none",
        "a }} b",
        "a in b",
        "a if b",
        "a | abs",
        "[1]",
        "",
    ],
)
def test_refused_in_one_line_that_quotes_it(text: str) -> None:
    with pytest.raises(WebnormError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ceil_dv(rows, 4)", "unknown function 'ceil_dv'; did you mean 'ceil_div'?"),
        ("rows / 4", "/ (use // for whole quotients) is not part of the language; expected integers, names"),
        ("min(1, a, b=2)", "a call of an expression, or with named arguments, is not part of the language"),
    ],
)
def test_a_refusal_names_the_part(text: str, message: str) -> None:
    with pytest.raises(WebnormError, match=re.escape(f"expression {text!r}: {message}")):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000 + "1" + ")" * 100_000,
        "(" * 900 + "1" + ")" * 900,
        "not " * 400 + "1",
        "-" * 1900 + "1",
        "1 if 1 else " * 150 + "1",
        "+".join("1" * 990),
        "+".join("1" * 60),
        "max(" * 60 + "1" + ", 1)" * 60,
        "1 < (" * 12 + "1" + ") < 1" * 12,
        "9" * 1000,
        "9" * 100_000,
        "a" * 100_000,
        "'" + "x" * 1900 + "'",
        "a " * 900,
        "max(" + "1," * 600 + "1)",
    ],
)
def test_too_large_expressions_are_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(WebnormError) as caught:
        check_names(parse(text), VALUES, text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["\x1b", "a\n\x1b[31m", "\u202e", "'\x1b'", "a\x1b", "1 \x00"])
def test_messages_contain_no_control_characters(text: str) -> None:
    with pytest.raises(WebnormError) as caught:
        parse(text)
    assert str(caught.value).isprintable()


def test_values_have_a_bound() -> None:
    values = {"s": 2}
    tree = parse("s * s")
    assert LARGEST == 2**63
    for _ in range(5):
        values["s"] = evaluate(tree, values)
    with pytest.raises(
        WebnormError, match=r"^s \* s is larger than 2\*\*63, the largest number of expressions$"
    ):
        for _ in range(34):
            values["s"] = evaluate(tree, values)
    with pytest.raises(WebnormError, match=r"is larger than 2\*\*63"):
        simplify(tree, {"s": 2**40})
    assert evaluate(parse("-s * s"), {"s": 2**31}) == -(2**62)
    with pytest.raises(WebnormError, match=r"a number of 65 bits is larger than"):
        parse(2**64)


def test_how_a_tree_is_shown() -> None:
    for text in (
        "(a + 1) * max(rows, 2)",
        "a if (b and rows) else (3 if (a < 4) else 5)",
        "ceil_div(a - 1, b)",
    ):
        assert shown(parse(text)) == text
    assert len(shown(parse(" + ".join(["rows"] * 40)))) < 150


def test_numpys_integers_are_integers() -> None:
    values: dict[str, Any] = {"cols": np.int64(3)}
    value = evaluate(parse("cols * 2 if cols else 0"), values)
    assert value == 6 and type(value) is int
    assert simplify(parse("cols + rows"), values) == ["+", 3, "rows"]


def test_names() -> None:
    tree = parse("min(rows, a) if cols > 3 else -b")
    assert names(tree) == {"rows", "a", "cols", "b"}
    check_names(tree, VALUES, "...")
    with pytest.raises(WebnormError, match="unknown name 'cols'"):
        check_names(tree, {"rows", "a", "b"}, "...")
    with pytest.raises(WebnormError, match="unknown name 'rows'"):
        evaluate(parse("rows"), {})


@pytest.mark.parametrize("text", ["1 // 0", "1 % b", "ceil_div(a, b)"])
def test_division_by_zero(text: str) -> None:
    with pytest.raises(WebnormError, match="division by zero"):
        evaluate(parse(text), VALUES)


_leaves = st.one_of(st.integers(0, 9).map(str), st.sampled_from(sorted(VALUES)))


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"])
    binary = st.tuples(inner, operators, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    choice = st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})")
    call = st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})")
    return st.one_of(binary, choice, call, inner.map(lambda t: f"(not {t})"), inner.map(lambda t: f"(-{t})"))


# Without parentheses, to compare the precedence with Python's. Python chains all comparisons, so one
# comparison is enough. `not` binds less tightly than arithmetic and cannot follow an arithmetic operator.
_bare = st.lists(
    st.tuples(
        st.sampled_from(["", "-"]), _leaves, st.sampled_from(["+", "-", "*", "//", "%", "and", "or", "<"])
    ),
    min_size=2,
    max_size=7,
).map(lambda terms: " ".join(f"{sign}{leaf} {operator}" for sign, leaf, operator in terms) + " 1")


@settings(max_examples=400)
@given(st.one_of(st.recursive(_leaves, _grow, max_leaves=12), _bare, _bare.map("not {}".format)))
def test_agrees_with_python(text: str) -> None:
    try:
        expected = int(eval(text, {"__builtins__": {}, "min": min, "max": max}, dict(VALUES)))
    except ZeroDivisionError:
        with pytest.raises(WebnormError):
            evaluate(parse(text), VALUES)
        return
    tree = parse(text)
    assert evaluate(tree, VALUES) == expected
    assert json.loads(json.dumps(tree)) == tree


@settings(max_examples=400)
@given(st.recursive(_leaves, _grow, max_leaves=12), st.sets(st.sampled_from(sorted(VALUES))))
def test_simplified_it_has_the_same_value(text: str, known: set[str]) -> None:
    tree = parse(text)
    given = {name: VALUES[name] for name in known}
    try:
        simple = simplify(tree, given)
    except WebnormError:
        # A part that may stay unevaluated divides by zero.
        return
    assert names(simple) <= names(tree) - known
    try:
        expected = evaluate(tree, VALUES)
    except WebnormError:
        with pytest.raises(WebnormError):
            evaluate(simple, VALUES)
        return
    assert evaluate(simple, VALUES) == expected


def test_a_text_is_parsed_once() -> None:
    """Headers repeat expressions of their layouts."""
    assert parse("ceil_div(cols, 12345)") is parse("ceil_div(cols, 12345)")
    for _ in range(2):
        with pytest.raises(WebnormError, match="expression '1 \\+ 12345 \\+'"):
            parse("1 + 12345 +")
