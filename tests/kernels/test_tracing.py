"""`trace` in templates: it leaves no text in ordinary renderings, and records values under tracing.

Filters.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import examples
from handmade import shader_of
from pages import ROOT, blocks
from testbed import GPU, KERNELS, needs, suited
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import refusal
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering import tracing
from webnorm.kernels.rendering.render import render_shader
from webnorm.kernels.rendering.snippets import strip_unused
from webnorm.kernels.rendering.tracing import TraceType
from webnorm.ops.norms.problem import NormOptions, NormProblem

# A statement on its own line, in functions, loops, macros and bodies of `call`.
STATEMENT = re.compile(r"^( +)(\S.*;)$", re.MULTILINE)


def test_an_ordinary_text_has_nothing_of_its_traces(tmp_path: Path) -> None:
    """The test adds traces around each statement of webnorm's kernels and snippets.

    One trace has its own line before the statement. Of the other two, one comes before and one after the
    statement, on its line.
    """
    folder = Path(shutil.copytree(wgsl_root(), tmp_path / "wgsl"))
    tags = 0
    for path in folder.rglob("*.wgsl"):
        text, count = STATEMENT.subn(
            r'\1{{ trace("mean") }}\n\1{{ trace("x - mean", "j") }}\2 {{ trace("sums") }}', path.read_text()
        )
        path.write_text(text)
        tags += count
    assert tags > 500
    for kernel in KERNELS:
        problem = suited(
            kernel, NormProblem(rows=4, cols=199, options=NormOptions(residual=not kernel.op.gradient))
        )
        problem = problem if not kernel.op.is_copy else NormProblem(rows=4, cols=199)
        variant = default_variant(kernel, problem, GPU)
        traced = load(folder / kernel.path.relative_to(wgsl_root()), kernel.op.name)
        there = render_shader(Variant(traced, variant.constants), problem, "native", GPU)
        # The renderer does not strip a user's text.
        lines = there.text.splitlines()
        lines, _ = strip_unused(lines, [True] * len(lines))
        assert lines == render_shader(variant, problem, "native", GPU).text.splitlines(), kernel.label


def test_under_tracing_the_text_says_which_row_it_works_on(device: Device) -> None:
    """Compilers accept the additions of the library in all kernels."""
    for kernel in KERNELS:
        for cap in (0, 3) if not kernel.op.is_copy else (0,):
            options = NormOptions(max_workgroups=cap, saved_stats=kernel.op.gradient)
            problem = suited(kernel, NormProblem(rows=7, cols=61, options=options))
            variant = default_variant(kernel, problem, device.traits)
            needs(device, variant.features(problem, device.traits))
            shader = render_shader(variant, problem, "native", device.traits, tracing="row == 3u")
            assert refusal(device, shader.text) is None, kernel.label
            assert kernel.op.is_copy or "traced_row = " in shader.text, kernel.label
            assert len(shader.origins) == len(shader.text.splitlines())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('trace("mean; discard")', "mine.wgsl:10: cannot trace 'mean; discard'"),
        ('trace("mean) + (1.0")', "mine.wgsl:10: cannot trace 'mean) + (1.0'"),
        ('trace("a[0")', "mine.wgsl:10: cannot trace 'a[0'"),
        ('trace("mean // all of it")', "mine.wgsl:10: cannot trace 'mean // all of it'"),
        ('trace("")', "mine.wgsl:10: cannot trace ''; expected an expression of at most 200"),
        ('trace("x" * 201)', "mine.wgsl:10: cannot trace 'xxx"),
        ("trace(7)", "mine.wgsl:10: trace() got 7; expected the text of an expression, as in {{ trace"),
        ('trace("mean", "j }")', "mine.wgsl:10: cannot trace 'j }'"),
        ("trace(mean)", "mine.wgsl:10: trace() got Undefined; expected the text of an expression"),
        ("trace()", "mine.wgsl:10: "),
    ],
)
def test_an_invalid_expression_is_refused_without_tracing_too(
    tmp_path: Path, call: str, message: str
) -> None:
    with pytest.raises(WebnormError) as caught:
        shader_of(tmp_path, f"\n{{{{ {call} }}}}\n")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "condition", "numbers"),
    [
        ("", "true", ()),
        ("  ", "true", ()),
        ("true", "true", ()),
        ("invocation < 2u", "(i32(traced_invocation) < N)", (2,)),
        ("workgroup == 1 and not (invocation == 0)", None, (1, 0)),
        ("workgroup == 1u && !(invocation == 0u)", None, (1, 0)),
        ("workgroup / 2 == 1 || workgroup % 2u == 1", None, (2, 1, 2, 1)),
        ("invocation", "(i32(traced_invocation) != 0)", ()),
        ("1 + 1 == 2", "true", ()),
        ("row == 3u", "traced_row != traced_no_row && (i32(traced_row) == N)", (3,)),
    ],
)
def test_filters(text: str, condition: str | None, numbers: tuple[int, ...]) -> None:
    found = tracing.parse_filter(text)
    assert found.numbers == numbers
    if condition is not None:
        assert re.sub(r"traced_records\.numbers\[\d+]", "N", found.condition) == condition


def test_both_spellings_are_one_filter() -> None:
    header = "row // 2 == 1 and (invocation < 2 or not (workgroup != 0))"
    assert tracing.parse_filter("row/2u==1u&&(invocation<2u||!(workgroup!=0u))") == tracing.parse_filter(
        header
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row = 3", "filter 'row = 3': unexpected '='; expected a condition of row, invocation, workgroup"),
        ("col == 3", "unknown name 'col'"),
        ("row == 3; discard", "unexpected ';'"),
        ("row == 3.5", "unexpected '.'"),
        ("row == 0x3", "unexpected '0'"),
        ("row ==", "filter 'row =='"),
        ("(row", "filter '(row'"),
        ("!row == 3", "! needs brackets after it, as in !(row == 3)"),
        ("row // invocation == 1", "the divisor must be a number above 0"),
        ("row % 0 == 1", "the divisor must be a number above 0"),
        ("1 // 0", "division by zero"),
        ("(row == 3) + 1", "is true or false; expected a number"),
        ("row == 99999999999", "99999999999 is too large"),
        ("atomicAdd(row, 1)", "unknown function 'atomicAdd'; expected one of ceil_div, max, min"),
        ("row is defined", "a test (is) is not part of the language"),
        ("row == 1" + " or row == 1" * 16, "it has more than 16 numbers"),
        ("row == 1 " * 100, "filter has 900 characters; the limit is 500"),
        ("(" * 200 + "row" + ")" * 200, ""),
    ],
)
def test_an_invalid_filter_gives_a_one_line_error(text: str, message: str) -> None:
    with pytest.raises(WebnormError) as caught:
        tracing.parse_filter(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


PARTS = ["row", "invocation", "workgroup", "3", "0u", "==", "<", "&&", "or", "!", "(", ")", "-", "%", "/"]
CONDITION = re.compile(
    r"(true|false|select|min|max|i32|traced_(row|no_row|invocation|workgroup|div|mod|ceil_div)"
    r"|traced_records\.numbers\[\d+]|&&|\|\||==|!=|<=|>=|[-+*<>(), ]|0)*"
)


@given(st.lists(st.sampled_from(PARTS), max_size=9).map(" ".join) | st.text(max_size=20))
@examples(60)
def test_no_text_of_a_filter_reaches_the_shader(text: str) -> None:
    try:
        found = tracing.parse_filter(text)
    except WebnormError as error:
        assert "\n" not in str(error)
    else:
        assert CONDITION.fullmatch(found.condition)


def test_types_by_their_names() -> None:
    names = ("f32", "vec4<f32>", "vec2<bool>", "u32", "vec3<i32>", "f16")
    assert [str(TraceType.of(name)) for name in names] == [*names]
    assert TraceType.of("vec2<{AbstractInt}>") == TraceType(2, "i32")
    others = ("mat2x2<f32>", "array<f32, 2>", "vec4<f64>", "ptr<private, f32>", "Moments")
    assert not any(map(TraceType.of, others))


def test_the_example_of_the_page_stands_in_two_pass() -> None:
    (example,) = blocks(ROOT / "docs" / "kernel-file.md", "jinja")
    lines = [line for line in example.splitlines(keepends=True) if "trace(" not in line]
    assert len(lines) < len(example.splitlines())
    assert "".join(lines) in (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text()
