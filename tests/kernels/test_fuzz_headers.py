"""Random headers and templates are read and rendered, or refused with a one-line message."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import examples
from patience import effort
from testbed import GPU, KERNELS, SOFTWARE
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import FORBIDDEN, split_header, wgsl_root
from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.kernels.headers.variants import runnable_variants, template_names_of
from webnorm.kernels.rendering import sandbox
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem

PROBLEMS = (
    NormProblem(rows=4, cols=8),
    NormProblem(rows=0, cols=1),
    NormProblem(rows=3, cols=77, dtype="float16"),
    NormProblem(rows=2**33, cols=20001, dtype="bfloat16"),
)
TRAITS = (GPU, SOFTWARE, BROWSER)
# The most processor time of a hostile kernel, as a multiple of the time of webnorm's own, and the time limit
# of a rendering. webnorm reads a normal example in milliseconds.
MOST_TIMES = 300
RENDER_S = 1.0
# The most characters of a message: a path and a shortened text.
LONGEST = 1500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with copies of webnorm's snippets, which the examples may overwrite."""
    root = tmp_path_factory.mktemp("fuzz")
    shutil.copytree(wgsl_root() / "lib", root / "lib")
    (root / "layer_norm").mkdir()
    return root


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "limits", sandbox.RenderLimits(time_s=RENDER_S))
        yield


def result_of(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or None if it refuses with one printable line."""
    try:
        return call()
    except WebnormError as error:
        message = str(error)
        assert message and not FORBIDDEN.search(message) and not re.search(r"[\n\r\t]", message)
        assert len(message) < LONGEST, message
        return None


def tried(path: Path, problem: NormProblem, traits: Traits, rendered: bool) -> None:
    def work() -> None:
        kernel = result_of(lambda: load(path))
        if kernel is not None:
            used(kernel, problem, traits, rendered)

    assert effort(work) < MOST_TIMES * usual()


@cache
def usual() -> float:
    """Return the processor time of one of webnorm's own kernels on this machine."""
    first = KERNELS[0]

    def work() -> None:
        load(first.path, first.op.name)
        used(first, NormProblem(rows=4, cols=64), BROWSER, rendered=True)

    return max(effort(work) for _ in range(3))


def used(kernel: Kernel, problem: NormProblem, traits: Traits, rendered: bool) -> None:
    variant = result_of(lambda: default_variant(kernel, problem, traits))
    result_of(
        lambda: [None for _, _ in zip(range(20), runnable_variants(kernel, problem, traits), strict=False)]
    )
    if variant is None or result_of(lambda: variant.refusal(problem, traits)) is not None or not rendered:
        return
    shader = result_of(lambda: render_shader(variant, problem, "native", traits))
    if shader is None:
        return
    assert not FORBIDDEN.search(shader.text)
    assert len(shader.origins) in (shader.text.count("\n"), 0)
    assert shader.workgroup_bytes >= 0
    for each in shader.passes:
        count = result_of(partial(shader.workgroup_count, each, problem.rows))
        assert count is None or count >= 0
        assert each.workgroup_size >= 1
    for one in shader.bindings:
        assert one.width >= 1
        if one.records is not None:
            records = result_of(partial(shader.records, one, problem.rows))
            assert records is None or records >= 0


# --- headers -------------------------------------------------------------------------------------

HEADERS = [split_header(kernel.path.read_text(), kernel.path)[1].splitlines() for kernel in KERNELS]
NAMES = [
    "rows",
    "cols",
    "span",
    "steps",
    "threads_per_row",
    "workgroup_size",
    "software",
    "groups",
    "width",
    "a",
]
NUMBERS = ["0", "1", "-1", "7", "65536", str(2**31), str(2**63), str(10**400), "1.5", "true", "1_0", "0x1f"]
OPERATORS = [
    "+",
    "-",
    "*",
    "//",
    "%",
    "==",
    "<",
    "<=",
    ">",
    "and",
    "or",
    "**",
    "/",
    "if 1 else",
    "in",
    "|",
    "~",
]

_leaves = st.sampled_from([*NAMES, *NUMBERS[:7], "", "(", "x.y", "x[0]", "none", "'a'", "\x1b", "\u202e"])


def repeated(text: str, times: int) -> str:
    """Repeat a text, but only until a file with it is too large, because repetitions nest."""
    return text * min(times, 1 + (1 << 16) // len(text))


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(" ".join),
        st.tuples(st.sampled_from(["min", "max", "ceil_div", "not ", "-", "len"]), inner).map(
            "({0[0]}({0[1]}))".format
        ),
        st.tuples(st.sampled_from(["min", "max", "ceil_div"]), inner, inner).map(
            "{0[0]}({0[1]}, {0[2]})".format
        ),
        st.tuples(inner, st.integers(1, 300)).map(
            lambda pair: repeated(f"({pair[0]} * ", pair[1]) + "2" + ")" * pair[1]
        ),
    )


expressions = st.recursive(_leaves, _grown, max_leaves=8)
values = st.recursive(
    st.one_of(
        st.sampled_from(
            [*NUMBERS, "inf", "nan", "2026-01-01", "07:00:00", '""', '"main"', '"rows"', "'", "}", "]"]
        ),
        expressions.map(
            lambda text: '"' + text.replace("\x1b", "\\u001b").replace("\u202e", "\\u202e") + '"'
        ),
        st.integers().map(str),
        st.text(max_size=8).map(lambda text: '"' + re.sub(r'[\x00-\x1f\x7f"\\]', "", text) + '"'),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: f"[{', '.join(parts)}]"),
        inner.map("{{a = {}}}".format),
        st.tuples(st.integers(1, 3000), inner).map(lambda pair: "[" * pair[0] + pair[1] + "]" * pair[0]),
        st.tuples(st.integers(1, 200), inner).map(lambda pair: f"[{repeated(pair[1] + ', ', pair[0])}]"),
    ),
    max_leaves=6,
)
TABLES = [
    "tune",
    "default",
    "derive",
    "features",
    "accuracy",
    "[require]",
    "[pass]",
    "[scratch]",
    "scratch",
    "x.y",
]
KEYS = ["summary", "rung", "unstable", "preference", "name", "words", "records", "per", "bindings", "when"]
KEYS += [
    "entry_point",
    "iterations",
    "rule",
    "why",
    "subgroups",
    "serial_terms",
    *NAMES,
    "'a b'",
    '"\\u001b"',
]
keys = st.sampled_from(KEYS)
tables = st.sampled_from(TABLES).map("[{}]".format)
lines = st.one_of(st.tuples(keys, values).map(" = ".join), tables, st.text(max_size=12))


LIKE: list[tuple[str, list[str]]] = [
    (r"\b\d+\b", ["0", "1", "2", "3", "7", "-1", "64", "65536", str(2**31), str(2**62)]),
    (
        r"\b[a-z_]{4,}\b",
        ["rows", "cols", "span", "packed", "software", "itemsize", "max_workgroups", "7", "0"],
    ),
    (r" [-+*/%<>=]+ | and | or ", [f" {sign} " for sign in OPERATORS[:11]]),
]


def _exchanged(draw: st.DrawFn, line: str, pattern: str, other: st.SearchStrategy[str]) -> str:
    """Return the line with something else in the place of one of its parts."""
    found = [match.span() for match in re.finditer(pattern, line)]
    if not found:
        return line
    first, last = draw(st.sampled_from(found))
    return line[:first] + draw(other) + line[last:]


@st.composite
def mutated_headers(draw: st.DrawFn) -> list[str]:
    """Draw a real header with some lines changed, dropped, repeated, exchanged or added."""
    header = list(draw(st.sampled_from(HEADERS)))
    for _ in range(draw(st.sampled_from((1, 1, 2, 4)))):
        at = draw(st.integers(0, len(header) - 1))
        line = header[at]
        match draw(st.integers(0, 15)):
            case 0 if len(header) > 1:
                del header[at]
            case 1:
                header.insert(at, line)
            case 2:
                header.insert(at, draw(lines))
            case 3:
                other = draw(st.integers(0, len(header) - 1))
                header[at], header[other] = header[other], line
            case 4 if "=" in line:
                header[at] = f"{line.partition('=')[0]}= {draw(values)}"
            case 5 if "=" in line:
                header[at] = f"{draw(keys)} ={line.partition('=')[2]}"
            case 6 if "=" in line:
                header[at] = f'{line.partition("=")[0]}= "{draw(expressions)}"'
            case 7:
                cut = draw(st.integers(0, len(line)))
                header[at] = line[:cut] + draw(st.text(max_size=3)) + line[cut:]
            case 8:
                header[at] = _exchanged(draw, line, r"\w+|[^\w\s]", _leaves)
            case _:
                # A valid replacement: another number, name or operator within an expression.
                first = line.find("=") + 1
                pattern, others = draw(st.sampled_from(LIKE))
                header[at] = line[:first] + _exchanged(draw, line[first:], pattern, st.sampled_from(others))
    return header


random_headers = st.lists(lines, max_size=12)
BODY = "@compute @workgroup_size(8)\nfn main() {{ '{{ cols }}' }}\n"


@pytest.mark.slow
@examples(250)
@given(
    header=st.one_of(mutated_headers(), mutated_headers(), mutated_headers(), random_headers),
    problem=st.sampled_from(PROBLEMS),
    traits=st.sampled_from(TRAITS),
    rendered=st.integers(0, 3),
)
def test_headers(
    folder: Path, header: list[str], problem: NormProblem, traits: Traits, rendered: int
) -> None:
    path = folder / "layer_norm" / "header.wgsl"
    toml = "".join(f"// {line}\n" for text in header for line in text.split("\n"))
    path.write_text(f"// /// webnorm\n{toml}// ///\n{BODY}", encoding="utf-8", errors="surrogatepass")
    tried(path, problem, traits, rendered == 0)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@examples(150)
@given(st.one_of(st.binary(max_size=99), st.text(max_size=9).map(_encoded)), st.integers(0, 10**6))
def test_files_with_foreign_bytes(folder: Path, some: bytes, seed: int) -> None:
    rng = random.Random(seed)
    data = rng.choice(KERNELS).path.read_bytes()
    at = rng.randrange(len(data))
    path = folder / "layer_norm" / "bytes.wgsl"
    path.write_bytes(data[:at] + some + data[at + rng.randrange(3) * len(some) :])
    tried(path, PROBLEMS[0], GPU, seed % 4 == 0)


# --- templates -----------------------------------------------------------------------------------

BODIES = [
    *(
        kernel.path.read_text().split("// ///\n", 1)[1]
        for kernel in KERNELS
        if kernel.op.name == "layer_norm"
    ),
    *(path.read_text() for path in sorted((wgsl_root() / "lib").glob("*.wgsl"))),
]
HEADER = (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text().split("// ///\n", 1)[0] + "// ///\n"
INCLUDED = [
    "lib/row.wgsl",
    "lib/part.wgsl",
    "../x",
    "/etc/passwd",
    "lib",
    "",
    ".",
    "a/" * 90,
    "x" * 3000,
    "\\u0000",
]
TERMS = [
    "cols",
    "steps",
    "tensors",
    "buffers",
    "params",
    "op",
    "features",
    "nothing",
    "loop",
    "self",
    "caller",
    "k",
    "0",
    "1",
    "9 ** 9",
    "9 ** 9 ** 9",
    "'x' * 10 ** 10",
    "range(99999)",
    "range(10 ** 9)",
    "[0] * 10 ** 9",
    "'%9999999999d' | format(1)",
    "cycler(1)",
    "namespace(a=1)",
    "lipsum(5)",
    "dict(a=1)",
    "joiner()",
    "x.__class__",
    "'\\u001b'",
    "'\\ud800'",
    "'\\ufdd0'",
    "'\\u2028'",
    "1.5",
    "none",
    "true",
    "{}",
    "[]",
    "()",
    "''",
    *template_names_of(OPS["layer_norm"]),
]
FILTERS = [
    "upper",
    "list",
    "center(10 ** 9)",
    "join",
    "indent",
    "sort",
    "length",
    "map('upper')",
    "first",
    "nonsense",
]
FILTERS += [
    "tojson",
    "pprint",
    "wordwrap(1)",
    "replace('a', 'b' * 999)",
    "batch(3)",
    "urlize",
    "xmlattr",
    "sum",
]
terms = st.recursive(
    st.sampled_from(TERMS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(FILTERS)).map(" | ".join),
        st.tuples(inner, st.sampled_from(["+", "*", "~", "//", "in", "is", "and", "["]), inner).map(" ".join),
        inner.map("({})".format),
        st.tuples(inner, inner).map("{0[0]}[{0[1]}]".format),
        inner.map("{}.append(1)".format),
    ),
    max_leaves=4,
)
includes = st.sampled_from(INCLUDED).map(repr)
pieces = st.recursive(
    st.one_of(
        terms.map("{{{{ {} }}}}".format),
        includes.map("{{% include {} %}}".format),
        includes.map("{{% include {} ignore missing %}}".format),
        includes.map("{{% import {} as m %}}{{{{ m.x }}}}".format),
        includes.map("{{% from {} import row_reduction with context %}}".format),
        includes.map("{{% extends {} %}}".format),
        st.tuples(terms, terms).map("{{% set {0[0]} = {0[1]} %}}".format),
        st.text(max_size=10),
        st.sampled_from(
            ["var<workgroup> a: array<f32, 64>;", "fn f() { f(); }", "{#", "#}", "{%", "%}", "}}", "{{"]
        ),
        st.sampled_from(
            ["\n", "{% endfor %}", "{% else %}", "{% raw %}", "{% break %}", "{% do %}", "{{ f(3) }}"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("\n".join),
        st.tuples(terms, inner).map("{{% for k in {0[0]} %}}{0[1]}{{% endfor %}}".format),
        st.tuples(terms, inner).map("{{% if {0[0]} %}}{0[1]}{{% endif %}}".format),
        inner.map("{{% macro f(n) %}}{}{{% endmacro %}}{{{{ f(1) }}}}".format),
        inner.map("{{% set k %}}{}{{% endset %}}{{{{ k[3:] }}}}".format),
        inner.map("{{% call f(1) %}}{}{{% endcall %}}".format),
        inner.map("{{% filter upper %}}{}{{% endfilter %}}".format),
        st.tuples(st.integers(1, 40), inner).map(lambda p: "{% if 1 %}" * p[0] + p[1] + "{% endif %}" * p[0]),
    ),
    max_leaves=6,
)


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Draw random pieces, or a real text with pieces added, removed or doubled."""
    if draw(st.booleans()):
        return str(draw(pieces))
    text: str = draw(st.sampled_from(BODIES))
    for _ in range(draw(st.integers(1, 3))):
        tokens = [match.span() for match in re.finditer(r"\w+|[^\w\s]|\n", text)]
        first, last = draw(st.sampled_from(tokens))
        match draw(st.integers(0, 3)):
            case 0:
                text = text[:first] + text[last:]
            case 1:
                text = text[:last] + draw(pieces) + text[last:]
            case 2:
                text = text[:first] + draw(st.sampled_from(TERMS)) + text[last:]
            case _:
                other, end = draw(st.sampled_from(tokens))
                text = text[:first] + text[other:end] + text[first:]
    return text


@pytest.mark.slow
@examples(80)
@given(body=bodies(), part=st.one_of(st.just(""), pieces), problem=st.sampled_from(PROBLEMS[:3]))
def test_bodies(folder: Path, body: str, part: str, problem: NormProblem) -> None:
    path = folder / "layer_norm" / "body.wgsl"
    for place, text in ((path, HEADER + body), (folder / "lib" / "part.wgsl", part)):
        place.write_text(text, encoding="utf-8", errors="surrogatepass")
    tried(path, problem, GPU, True)
