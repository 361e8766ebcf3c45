"""Calls of functions that return what they are given: where they are taken out of a text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import refusal
from webnorm.kernels.rendering import inline_trivial
from webnorm.kernels.rendering.inline_trivial import inline_calls
from webnorm.kernels.source_map.line_map import spliced
from webnorm.kernels.wgsl import declarations, tokens
from webnorm.kernels.wgsl.diagnostics import read_report

LIBRARY = """\
alias Vec = f32;

// `value` where the column exists.
fn where_live(value: Vec, otherwise: Vec, j: u32) -> Vec {
    return value;
}

fn load_x(row: u32, j: u32) -> Vec {
    let raw = x[row + j];
    return where_live(raw, Vec(), j);
}

fn load_input(row: u32, j: u32) -> Vec {
    return load_x(row, j);
}
"""
BINDINGS = """\
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
"""


def shown(library: str, own: str = "") -> str:
    """What becomes of text of the library's, and behind it of a user's."""
    lines = [*library.splitlines(), *own.splitlines()]
    count = len(library.splitlines())
    return "\n".join(inline_calls(lines, [at < count for at in range(len(lines))])[0])


def body(*lines: str) -> str:
    return "\n".join(["@compute @workgroup_size(1)", "fn main() {", *(f"    {line}" for line in lines), "}"])


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("y = where_live(a + b, c, 0u) * 2.0;", "y = (a + b) * 2.0;"),
        ("y = 2.0 * where_live(a, c, 0u);", "y = 2.0 * a;"),
        ("y = max(where_live(a - b, c, 0u), c);", "y = max(a - b, c);"),
        ("y = where_live(f(a, b)[k], c, 0u) - where_live(b, c, 0u);", "y = f(a, b)[k] - b;"),
        ("y = where_live(where_live(a - b, c, 0u) / c, c, 0u);", "y = (a - b) / c;"),
        ("y = where_live(where_live(a - b, c, 0u), c, 0u) * c;", "y = (a - b) * c;"),
        ("y = a == where_live(b == c, c, 0u);", "y = a == (b == c);"),
        ("y = -where_live(a - b, where_live(c, c, 0u), 0u);", "y = -(a - b);"),
    ],
)
def test_brackets_stay_where_they_are_needed(call: str, left: str) -> None:
    assert left in shown(LIBRARY + body(call))


@pytest.mark.parametrize(
    "call",
    [
        "y = where_live(1, Vec(), 0u) / 2;",
        "y = where_live(a, b);",
        "y = where_live(a, b, c, d);",
        "y = where_live(a,\n    b, 0u);",
        "let where_live = 1.0; y = where_live(a, b, 0u);",
    ],
)
def test_what_may_mean_something_else_stays(call: str) -> None:
    """A literal takes its type from the function; wrong calls are the compiler's to see; a variable may have
    a function's name.
    """
    assert call in shown(LIBRARY + body(call))


def test_names_that_begin_or_end_alike_are_others() -> None:
    text = shown(LIBRARY + body("y = load_input_too(load_input(0u, 0u));"))
    assert "y = load_input_too(load_x(0u, 0u));" in text


def test_functions_that_lead_back_to_themselves_stay() -> None:
    library = "".join(
        f"fn {name}(a: f32) -> f32 {{\n    return {called}(a);\n}}\n"
        for name, called in (("one", "two"), ("two", "three"), ("three", "two"), ("self", "self"))
    )
    own = body("y = one(a) + self(a);")
    assert shown(library + own) == library + own


def test_chains_of_functions_are_followed_to_their_end() -> None:
    """However long: the next name waits in no stack of Python's."""
    count = 3 * sys.getrecursionlimit()
    library = "".join(
        f"fn n{at}(a: f32) -> f32 {{\n    return n{at + 1}(a);\n}}\n" for at in range(count)
    ) + (f"fn n{count}(a: f32) -> f32 {{\n    return a * 2.0;\n}}\n")
    assert f"y = n{count}(a);" in shown(library + body("y = n0(a);"))


# --- drawn texts

WORDS = (
    "load_x",
    "load_input",
    "where_live",
    "Vec",
    "x",
    "min",
    "load",
    "load_x2",
    "étage",
)
NAME = st.sampled_from(WORDS)
EXPRESSION = st.recursive(
    st.one_of(NAME, st.sampled_from(["1.0", "0u", "Vec()", "y[0]", "vec2(1.0, 2.0).x", "(1.0"])),
    lambda inner: st.one_of(
        st.builds("{}({}, {})".format, NAME, inner, inner),
        st.builds("{}({})".format, NAME, inner),
        st.builds("where_live({}, {}, 0u)".format, inner, inner),
        st.builds("({} * {})".format, inner, inner),
    ),
    max_leaves=5,
)
STATEMENT = st.one_of(
    st.builds("y[0] = {};".format, EXPRESSION),
    st.builds("let {} = {};".format, NAME, EXPRESSION),
    st.builds("/* {} */ // {} /*".format, NAME, EXPRESSION),
    st.builds("{{ var {} = {}; }}".format, NAME, EXPRESSION),
    st.builds("if ({} > 1.0) {{ return; }}".format, EXPRESSION),
    st.just("y[1] = load_input(0u, 0u);"),
)
DECLARATION = st.one_of(
    st.builds("fn {}(a: f32) -> f32 {{\n    return {};\n}}".format, NAME, EXPRESSION),
    st.builds("fn {0}({1}: f32) -> f32 {{\n    return {1};\n}}".format, NAME, NAME),
    st.builds("const {} = {};".format, NAME, EXPRESSION),
    st.builds("struct S {{ {}: f32 }}\nvar<private> s: S;".format, NAME),
    st.builds("var<private> {}: f32; const other = {};".format, NAME, EXPRESSION),
    st.builds("alias {} = f32;".format, NAME),
    st.builds("@id(1) override {} = 1.0;".format, NAME),
    st.builds("/* fn {}() {{ /* */".format, NAME),
    st.builds("/* fn {}() {{ */ // {}\n\n".format, NAME, EXPRESSION),
    st.builds("fn main2() {{\n    {}\n    {}\n}}".format, STATEMENT, STATEMENT),
    st.sampled_from(["}", "@must_use", "fn unfinished(a: f32) -> f32 {", ";", LIBRARY]),
)


@st.composite
def texts(draw: st.DrawFn) -> list[tuple[str, bool]]:
    """Lines of a text, and whether each is the library's."""
    parts = [(BINDINGS, False), (LIBRARY, True)]
    for text in draw(st.lists(DECLARATION, max_size=3)):
        parts.insert(draw(st.integers(0, len(parts))), (text, text == LIBRARY))
    statements = draw(st.lists(STATEMENT, max_size=4))
    entry = "\n".join(["@compute @workgroup_size(1)", "fn main() {", *statements, "}"])
    parts.insert(draw(st.integers(1, len(parts))), (entry, False))
    return [(line, own) for text, own in parts for line in text.split("\n")]


@given(texts())
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_a_text_means_what_it_meant(device: Device, drawn: list[tuple[str, bool]]) -> None:
    lines, own = [line for line, _ in drawn], [mine for _, mine in drawn]
    text, changes = inline_calls(lines, own)
    # All that is changed is where it says, and the library's.
    for at, line in enumerate(text):
        source, splices = changes.get(at, (at, []))
        before = lines[source]
        for splice in splices:
            before = splice.of(before)
        assert line == before and (not splices or own[at])
        assert list(spliced([], splices)) == []
    assert inline_calls(text, own)[0] == text
    # naga refuses the one where it refuses the other, for the same reason and at the same place.
    before_said, said = refusal(device, "\n".join(lines)), refusal(device, "\n".join(text))
    assert (before_said is None) == (said is None)
    if before_said is not None and said is not None:
        one, other = read_report(before_said, lines), read_report(said, text)
        assert one.complaint == other.complaint
        if one.line is not None and not own[min(one.line, len(own)) - 1]:
            assert other.line == one.line


def steps(work: Callable[[], object]) -> int:
    """How many lines of the rewriter's own code are run."""
    files = {one.__file__ for one in (declarations, tokens, inline_trivial)}
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in files:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "text",
    [
        lambda count: LIBRARY * count,
        lambda count: LIBRARY + body(*["let load_x = load_input(load_x(0u), 1u);"] * count),
        lambda count: LIBRARY + body(*[f"let a{at} = a{at - 1};" for at in range(count)]),
        lambda count: LIBRARY + body("y = " + "where_live(" * count + "a" + ", b, 0u)" * count + ";"),
        lambda count: LIBRARY + body("y = " + "where_live(a, b, 0u) + " * count + "a;"),
        lambda count: "".join(
            f"fn n{at}(a: f32) -> f32 {{\n    return n{at + 1}(a);\n}}\n" for at in range(count)
        ),
        lambda count: "/*" * count + "\n*/ // fn a() {" * count,
        lambda count: "{" * count + "\n}" * count + "\n;",
        lambda count: LIBRARY + "@a" * count + "(b) " * count + "fn c() {}",
    ],
)
def test_the_work_grows_with_the_text(text: Callable[[int], str]) -> None:
    def work(count: int) -> Callable[[], object]:
        lines: Sequence[str] = text(count).splitlines()

        def run() -> object:
            declarations.read_line.cache_clear()
            return inline_calls(lines, [True] * len(lines))

        return run

    few, many = steps(work(40)), steps(work(160))
    assert many < 4.2 * few + 1000
