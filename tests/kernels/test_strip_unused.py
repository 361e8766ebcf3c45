"""The removal of unused declarations from a rendered text."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed import GPU, KERNELS, suited
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import refusal
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering import snippets as module
from webnorm.kernels.rendering import templates
from webnorm.kernels.rendering.render import render_shader
from webnorm.kernels.rendering.snippets import strip_unused
from webnorm.kernels.wgsl.diagnostics import read_report
from webnorm.kernels.wgsl.tokens import without_comments
from webnorm.ops.norms.problem import NormOptions, NormProblem

NORMS = [kernel for kernel in KERNELS if isinstance(kernel.op.defaults, NormOptions)]
BINDINGS = """\
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
"""
LIBRARY = """\
alias Vec = f32;

fn load_x(row: u32, j: u32) -> Vec {
    return x[row + j];  // where also_unused begins
}

// The sum of two.
// Nothing calls it but the next, which nothing calls.
fn unused(value: Vec) -> f32 {
    return value * FACTOR;
}

fn also_unused(value: Vec) -> f32 { return unused(value); }

const FACTOR = 2.0;  // unused
var<workgroup> shared_sums: array<f32, 4>;
"""
LEFT = """\
alias Vec = f32;

fn load_x(row: u32, j: u32) -> Vec {
    return x[row + j];  // where also_unused begins
}

"""
BODY = """\
@compute @workgroup_size(1)
fn main() {
    y[0] = load_x(0u, 1u);
}
"""


def shown(library: str, own: str = "") -> str:
    """Return the remaining text of a library text followed by a user's text."""
    lines = [*library.splitlines(), *own.splitlines()]
    count = len(library.splitlines())
    text, numbers = strip_unused(lines, [at < count for at in range(len(lines))])
    assert text == [lines[at] for at in numbers]
    return "\n".join(text) + "\n"


def test_unused_declarations_are_removed() -> None:
    assert shown(LIBRARY + BODY) == LEFT + BODY
    assert shown(LIBRARY, BODY) == LEFT + BODY


@pytest.mark.parametrize("line", ["y[1] = also_unused(1.0);", "// also_unused", "/* also_unused */"])
def test_declarations_that_a_user_names_stay(line: str) -> None:
    """Names in comments count too, because only the compiler decides what a comment is."""
    own = BODY.replace("}", f"    {line}\n}}")
    assert shown(LIBRARY, own) == LIBRARY.replace("var<workgroup> shared_sums: array<f32, 4>;\n", "") + own


@pytest.mark.parametrize("line", ["fn mine() {", "    return a;", "const MINE = 1.0;", "}", "/*", "\t{"])
def test_a_users_lines_stay_as_they_are(line: str) -> None:
    own = f"{line}\n{BODY}"
    assert own in shown(LIBRARY, own)


def test_declarations_with_attributes_stay() -> None:
    library = (
        f"{BINDINGS}@id(3) override WIDTH = 1.0;\n@must_use\nfn other() -> f32 {{\n    return 1.0;\n}}\n"
    )
    assert shown(library + BODY) == library + BODY


def test_a_declaration_with_a_line_of_the_users_stays() -> None:
    """The user's text is the argument of a call of the library's macro."""
    lines = ["fn reduced() -> f32 {", "    return mine();", "}", "const OTHER = 1.0;"]
    assert strip_unused(lines, [True, False, True, True])[0] == lines[:3]
    assert strip_unused(lines, [True] * 4)[0] == []


@pytest.mark.parametrize(
    "declared",
    [
        "fn load_x(a: f32) -> f32 {\n    return a;\n}",
        "const unused = 1.0;",
        "struct load_x {\n    unused: f32,\n}",
        "alias Vec = f32;",
        "override FACTOR = 1.0;",
        "@id(3) override FACTOR = 1.0;",
        "var<private> also_unused: f32;",
        LIBRARY,
    ],
)
def test_duplicate_declarations_stay(declared: str, device: Device) -> None:
    """The compiler must see both, so that naga reports the written name at its written place."""
    text = f"{BINDINGS}{LIBRARY}{declared}\n{BODY}"
    name = next(word for word in re.findall(r"\w+", declared) if f" {word}" in LIBRARY and word != "f32")
    for own in ([True] * len(text.splitlines()), [line in LIBRARY for line in text.splitlines()]):
        lines, numbers = strip_unused(text.splitlines(), own)
        said = refusal(device, "\n".join(lines))
        assert said is not None and f"redefinition of `{name}`" in said
        second = numbers[(read_report(said, lines).line or 0) - 1]
        assert second == len(f"{BINDINGS}{LIBRARY}".splitlines())


def test_a_text_may_begin_with_a_brace_and_be_empty() -> None:
    assert strip_unused([], []) == ([], [])
    for text in ("}", "\n}\n", "fn a() {", "fn a() {\n}\n}", "// fn a() {\n"):
        shown(text)


def test_webnorm_writes_declarations_as_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A brace is in the first column if and only if it closes a declaration."""
    monkeypatch.setattr(templates, "strip_unused", lambda lines, _: (list(lines), list(range(len(lines)))))
    for kernel in NORMS:
        for cols in (768, 199):
            problem = suited(kernel, NormProblem(rows=64, cols=cols, options=kernel.op.defaults))
            shader = render_shader(default_variant(kernel, problem, GPU), problem, "native", GPU)
            depth = 0
            for line in without_comments(shader.text).splitlines():
                begins = re.match(r"(@[^;{]*)?(fn|const|alias|var|struct|override|enable)\b|@|\)|\}", line)
                assert bool(begins) == (bool(line) and not line.startswith(" ")), (kernel.label, line)
                assert depth == 0 or not line or line[0] in " })", (kernel.label, line)
                depth += sum(map(line.count, "({[")) - sum(map(line.count, ")}]"))
                assert depth == 0 or not line.startswith("}"), (kernel.label, line)
            assert depth == 0


def test_webnorms_text_is_right_without_it(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a user may call all functions that the text declares."""
    monkeypatch.setattr(templates, "strip_unused", lambda lines, _: (list(lines), list(range(len(lines)))))
    for at, kernel in enumerate(NORMS):
        wide = NormProblem(rows=64, cols=768, options=kernel.op.defaults)
        odd = NormProblem(rows=64, cols=199, dtype="float16", options=NormOptions(**vars(kernel.op.defaults)))
        problem = suited(kernel, (wide, odd)[at % 2])
        variant = default_variant(kernel, problem, GPU)
        # An adapter without subgroups refuses the text for this reason only.
        if variant.features(problem, GPU) <= device.traits.features:
            shader = render_shader(variant, problem, "native", GPU)
            assert refusal(device, shader.text) is None, kernel.label


# A function that returns one of its parameters, or another function's result for all of them.
TRIVIAL = re.compile(r"^fn (\w+)\((.*)\) -> .*\{\n    return (\w+)(\(.*\))?;\n\}$", re.MULTILINE)


def trivial_in(text: str) -> set[str]:
    found = set[str]()
    for name, parameters, value, arguments in TRIVIAL.findall(text):
        names = [parameter.split(":")[0] for parameter in parameters.split(", ")]
        if value in names or arguments == f"({', '.join(names)})":
            found.add(name)
    return found


def of_each_width(variant: Variant, problem: NormProblem) -> Iterator[Variant]:
    """Yield the variant, and the same variant with every other width of a Vec that can run."""
    yield variant
    for width in variant.kernel.tune.get("vector_width", ()):
        other = Variant(variant.kernel, {**variant.constants, "vector_width": width})
        if other.refusal(problem, GPU) is None:
            yield other


def test_snippets_call_no_function_that_does_nothing() -> None:
    """Such functions are for the kernels' own text. A snippet writes the expression without the call."""
    called = set[str]()
    for kernel in NORMS:
        for cols, dtype in ((4096, "float32"), (1022, "float16"), (61, "bfloat16")):
            wanted = NormProblem(rows=64, cols=cols, dtype=dtype, options=kernel.op.defaults)
            problem = suited(kernel, wanted)
            for variant in of_each_width(default_variant(kernel, problem, GPU), problem):
                shader = render_shader(variant, problem, "native", GPU)
                trivial = trivial_in(shader.text)
                for (file, _), line in zip(shader.origins, shader.text.splitlines(), strict=True):
                    calls = trivial & {*re.findall(r"(?<!fn )\b(\w+)\(", line)}
                    called |= calls
                    assert not calls or not file.startswith("wgsl/lib/"), (variant, line)
    assert {"load_input", "where_live", "total"} <= called


# --- drawn texts

NAME = st.sampled_from(("load_x", "unused", "also_unused", "FACTOR", "Vec", "x", "min", "load_x2", "étage"))
EXPRESSION = st.recursive(
    st.one_of(NAME, st.sampled_from(["1.0", "0u", "Vec()", "y[0]", "vec2(1.0, 2.0).x", "(1.0"])),
    lambda inner: st.one_of(
        st.builds("{}({}, {})".format, NAME, inner, inner),
        st.builds("{}({})".format, NAME, inner),
        st.builds("({} * {})".format, inner, inner),
    ),
    max_leaves=4,
)
STATEMENT = st.one_of(
    st.builds("y[0] = {};".format, EXPRESSION),
    st.builds("let {} = {};".format, NAME, EXPRESSION),
    st.builds("/* {} */ // {} /*".format, NAME, EXPRESSION),
    st.just("y[1] = also_unused(load_x(0u, 0u));"),
)
DECLARATION = st.one_of(
    st.builds("fn {}(a: f32) -> f32 {{\n    return {};\n}}".format, NAME, EXPRESSION),
    st.builds("const {} = {};".format, NAME, EXPRESSION),
    st.builds("var<private> {}: f32; const other = {};".format, NAME, EXPRESSION),
    st.builds("alias {} = f32;".format, NAME),
    st.builds("/* fn {}() {{ */ // {}\n\n".format, NAME, EXPRESSION),
    st.sampled_from(["}", "@must_use", "fn unfinished(a: f32) -> f32 {", ";", "/*", "*/", LIBRARY]),
)


@st.composite
def texts(draw: st.DrawFn) -> list[tuple[str, bool]]:
    """Draw the lines of a text, each with True if it is the library's."""
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
def test_a_text_that_is_right_stays_so(device: Device, drawn: list[tuple[str, bool]]) -> None:
    lines, own = [line for line, _ in drawn], [mine for _, mine in drawn]
    text, numbers = strip_unused(lines, own)
    assert text == [lines[at] for at in numbers]
    # All of the user's text remains, in order.
    assert [at for at in numbers if not own[at] and lines[at]] == [
        at for at, line in enumerate(lines) if not own[at] and line
    ]
    assert strip_unused(text, [own[at] for at in numbers]) == (text, list(range(len(text))))
    if refusal(device, "\n".join(lines)) is None:
        assert refusal(device, "\n".join(text)) is None


def steps(work: Callable[[], object]) -> int:
    """Return the number of executed lines of the module."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
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
        lambda count: (
            "".join(f"fn n{at}() {{\n    n{at + 1}();\n}}\n" for at in range(count)) + BODY + "// n0"
        ),
        lambda count: "".join(f"fn n{at}() {{\n" for at in range(count)),
        lambda count: "".join(f"fn n{at}() {{\n" for at in range(count)) + "}",
        lambda count: "// comment\n" * count + "fn n() {}\n" * count,
    ],
)
@pytest.mark.parametrize("is_mixed", [False, True])
def test_the_work_grows_with_the_text(text: Callable[[int], str], is_mixed: bool) -> None:
    def work(count: int) -> Callable[[], object]:
        lines: Sequence[str] = text(count).splitlines()
        own = [not is_mixed or at % 3 > 0 for at in range(len(lines))]

        def run() -> object:
            module._words.cache_clear()
            return strip_unused(lines, own)

        return run

    few, many = steps(work(40)), steps(work(160))
    assert many < 4.2 * few + 1000
