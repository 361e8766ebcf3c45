"""What is taken out of a rendered text, and what is not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed import GPU, KERNELS, suited
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import refusal
from webnorm.kernels.rendering import inline_trivial, templates
from webnorm.kernels.rendering import strip_unused as plain_module
from webnorm.kernels.rendering.render import render_shader
from webnorm.kernels.rendering.strip_unused import strip_unused
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

// Nobody calls it, but for the next, which nobody calls.
fn unused(value: Vec) -> f32 {
    return value * FACTOR;
}

fn also_unused(value: Vec) -> f32 {
    return unused(value);
}

const FACTOR = 2.0;
"""
BINDINGS = """\
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
"""


def shown(library: str, own: str = "") -> str:
    """What becomes of text of the library's, and behind it of a user's."""
    lines = [*library.splitlines(), *own.splitlines()]
    count = len(library.splitlines())
    text, numbers, _ = strip_unused(lines, [at < count for at in range(len(lines))])
    assert len(text) == len(numbers)
    return "\n".join(text)


def body(*lines: str) -> str:
    return "\n".join(["@compute @workgroup_size(1)", "fn main() {", *(f"    {line}" for line in lines), "}"])


def test_what_does_nothing_is_taken_out() -> None:
    assert (
        shown(LIBRARY + body("sum += where_live(load_input(0u, 1u) - mean, Vec(), 1u);"))
        == """\
alias Vec = f32;

fn load_x(row: u32, j: u32) -> Vec {
    return x[row + j];
}

@compute @workgroup_size(1)
fn main() {
    sum += load_x(0u, 1u) - mean;
}"""
    )


def test_what_a_user_wrote_stays_as_it_is() -> None:
    """And what it calls: a compiler that complains of it names what stands there."""
    own = body("sum += where_live(load_input(0u, 1u) - mean, Vec(), 1u);")
    assert (
        shown(LIBRARY, own)
        == """\
alias Vec = f32;

// `value` where the column exists.
fn where_live(value: Vec, otherwise: Vec, j: u32) -> Vec {
    return value;
}

fn load_x(row: u32, j: u32) -> Vec {
    return x[row + j];
}

fn load_input(row: u32, j: u32) -> Vec {
    return load_x(row, j);
}

"""
        + own
    )


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
    text = shown(LIBRARY + body(call))
    assert call in text and "fn where_live(" in text


@pytest.mark.parametrize(
    "declared",
    [
        "fn load_input(a: f32) -> f32 {\n    return a;\n}",
        "fn where_live(value: Vec) -> Vec {\n    return value;\n}",
        "const load_x = 1.0;",
        "struct load_input {\n    load_x: f32,\n}",
        "alias where_live = f32;",
        "override FACTOR = 1.0;",
        "@id(3) override FACTOR = 1.0;",
        "var<private> also_unused: f32;",
        LIBRARY,
    ],
)
def test_what_is_declared_twice_stays(declared: str, device: Device) -> None:
    """The compiler has to see both: naga names what was written, where it was written."""
    text = f"{BINDINGS}{LIBRARY}{declared}\n{body('y[0] = load_input(0u, 0u);')}\n"
    name = next(word for word in re.findall(r"\w+", declared) if f" {word}" in LIBRARY and word != "f32")
    for own in ([True] * len(text.splitlines()), [line in LIBRARY for line in text.splitlines()]):
        lines, numbers, _ = strip_unused(text.splitlines(), own)
        said = refusal(device, "\n".join(lines))
        assert said is not None and f"redefinition of `{name}`" in said
        second = numbers[(read_report(said, lines).line or 0) - 1]
        assert second == len(f"{BINDINGS}{LIBRARY}".splitlines())


@pytest.mark.parametrize(
    "own",
    [
        "fn other() {\n",
        "}\n",
        "fn other(] {\n}\n",
        "/* a comment without an end\n",
        "const OTHER = (1.0;\n",
    ],
)
def test_what_is_not_understood_stays_as_it_is(own: str) -> None:
    text = shown(LIBRARY, own + body("y[0] = 1.0;"))
    assert [line for line in text.splitlines() if line] == [
        line for line in (LIBRARY + own + body("y[0] = 1.0;")).splitlines() if line
    ]


@pytest.mark.parametrize(
    "own",
    [
        "// fn load_x(row: u32, j: u32) -> Vec { return unused(1.0); }",
        "/* fn load_x(row: u32, j: u32) -> Vec {\n /* } */ return unused(1.0);\n} */",
        "/**/ // unused /*\n// */ const",
    ],
)
def test_comments_are_no_code(own: str) -> None:
    text = shown(LIBRARY, own + "\n" + body("y[0] = load_x(0u, 0u);"))
    assert "fn unused" not in text and own in text and "return x[row + j];" in text


@pytest.mark.parametrize(
    ("before", "behind"),
    [("/*", "*/"), ("@must_use", ""), ("fn other() {", "}"), ("const MINE = 1.0; /*", "*/")],
)
def test_what_stands_in_something_of_the_users_is_left(before: str, behind: str) -> None:
    library = "fn nobodys(value: f32) -> f32 {\n    return value * 2.0;\n}"
    lines = f"{before}\n{library}\n{behind}\n{body('y[0] = 1.0;')}".splitlines()
    text, _, _ = strip_unused(lines, [line in library.splitlines() for line in lines])
    assert library in "\n".join(text)


def test_a_library_function_that_names_something_of_the_users_stays() -> None:
    """A user's own `min` may make it wrong, which the compiler has to say."""
    library = "fn nobodys(value: f32) -> f32 {\n    return min(value, 2.0);\n}\n"
    own = "fn min(one: f32, other: f32) -> f32 {\n    return one;\n}\n" + body("y[0] = 1.0;")
    assert shown(library, own) == f"{library}{own}"


def test_names_that_begin_or_end_alike_are_others() -> None:
    own = "fn load_x_too(a: f32) -> f32 {\n    return a;\n}\nfn my_unused() {\n}\n"
    text = shown(LIBRARY, own + body("y = load_x_too(a);"))
    assert own in text and "fn load_x(" not in text and "fn unused(" not in text


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
    text = shown(library + body("y = n0(a);"))
    assert text.count("fn ") == 2 and f"y = n{count}(a);" in text


def test_values_of_snippets_that_nobody_uses_are_taken_out() -> None:
    library = "@compute @workgroup_size(1)\nfn main() {\n" + "".join(
        f"    {line}\n"
        for line in ("let lane = 0u;", "let place = lane + 1u;", "let at = next();", "y[2u] = 1.0;")
    )
    left = "fn main() {\n    let at = next();\n    y[2u] = 1.0;\n}"
    assert shown(library + "}") == f"@compute @workgroup_size(1)\n{left}"
    # One that the function cannot make is an error to be seen.
    assert "let place = subgroup;" in shown("@compute\nfn main() {\n    let place = subgroup;\n}")


def test_a_text_may_begin_with_a_brace_and_be_empty() -> None:
    assert shown("}") == "}" and shown("\n}\n") == "}" and shown("") == ""


# --- drawn texts

WORDS = (
    "load_x",
    "load_input",
    "where_live",
    "unused",
    "FACTOR",
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
    text, numbers, changes = strip_unused(lines, own)
    # What is not the library's stands there, in order, and all that is changed is where it says.
    assert [at for at in numbers if not own[at] and lines[at]] == [
        at for at, line in enumerate(lines) if not own[at] and line
    ]
    for line, at in zip(text, numbers, strict=True):
        source, splices = changes.get(at, (at, []))
        before = lines[source]
        for splice in splices:
            before = splice.of(before)
        assert line == before and (not splices or (own[at] and own[source]))
        assert list(spliced([], splices)) == []
    again, kept, _ = strip_unused(text, [own[at] for at in numbers])
    assert again == text and kept == list(range(len(text)))
    # naga refuses the one where it refuses the other, for the same reason and at the same place.
    before_said, said = refusal(device, "\n".join(lines)), refusal(device, "\n".join(text))
    assert (before_said is None) == (said is None)
    if before_said is not None and said is not None:
        one, other = read_report(before_said, lines), read_report(said, text)
        assert one.complaint == other.complaint
        if one.line is not None and not own[min(one.line, len(own)) - 1]:
            assert other.line is not None and numbers[other.line - 1] == one.line - 1


def steps(work: Callable[[], object]) -> int:
    """How many lines of the rewriter's own code are run."""
    files = {one.__file__ for one in (declarations, plain_module, tokens, inline_trivial)}
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
            return strip_unused(lines, [True] * len(lines))

        return run

    few, many = steps(work(40)), steps(work(160))
    assert many < 4.2 * few + 1000


def test_what_is_taken_out_was_right(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """webnorm's own text compiles without being rewritten, so that a user's may always stay as it is."""
    monkeypatch.setattr(
        templates, "strip_unused", lambda lines, _: (list(lines), list(range(len(lines))), dict[int, Any]())
    )
    for at, kernel in enumerate(KERNELS):
        wide = kernel.op.problem(64, 768)
        odd = kernel.op.problem(64, 199, dtype="float16")
        problem = suited(kernel, (wide, odd)[at % 2])
        variant = default_variant(kernel, problem, GPU)
        # An adapter without subgroups refuses the text for that.
        if variant.features(problem, GPU) <= device.traits.features:
            shader = render_shader(variant, problem, "native", GPU)
            assert refusal(device, shader.text) is None, kernel.label
