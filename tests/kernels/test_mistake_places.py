"""The exact place of a mistake in a kernel's file or a snippet, from each tool that finds mistakes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from handmade import HEADER, shader_of
from headless import needs_tint
from webnorm.errors import SourceLocation, WebnormError, nearest
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.kernels.headers.header import load
from webnorm.kernels.rendering import sandbox, templates
from webnorm.kernels.rendering.render import Shader
from webnorm.kernels.wgsl.diagnostics import CompilerReport, characters, mistyped, read_report
from webnorm.web import tint

# In the texts below, these marks enclose the expected place.
OPEN, CLOSE = "«", "»"
START = len(HEADER.splitlines())


def marked(text: str) -> tuple[str, tuple[int, int, int]]:
    """Return the text without its marks, and the line, column and length of the marked part."""
    before, meant = text.split(OPEN)
    place = before.count("\n") + 1, len(before) - before.rfind("\n"), meant.index(CLOSE)
    return before + meant.replace(CLOSE, ""), place


def where(error: WebnormError) -> tuple[str, int, int, int]:
    assert error.place is not None
    assert str(error).startswith(f"{error.place.file}:{error.place.line}: ")
    return Path(error.place.file).name, error.place.line, error.place.column, error.place.length


@pytest.mark.parametrize("is_snippet", [False, True], ids=["kernel", "snippet"])
@pytest.mark.parametrize(
    "text",
    [
        "\t/* é */ {{ «nothing» }} {{ cols }}\n",
        "{{ {'nothing': 1}.nothing }} {{ 'nothing' ~ «nothing» }}\n",
        "é {{ cols.«nothing» }}\n",
        "é\t{% «unless» cols %}{% endunless %}\n",
        "é\t{{ cols | «nofilter» }}\n",
        "é\t{{ cols is «notest» }}\n",
        "é\t{% include «'lib/none.wgsl'» %}\n",
        "é\t{% include «'../none.wgsl'» %}\n",
        "é\t{% for k «cols» %}{% endfor %}\n",
        "é\t{{ cols «3» }}\n",
        "é\t{{ [1][0] + (cols «]» }}\n",
        "é\t{{ cols «$» 1 }}\n",
        "\né\t{% if «%}»{% endif %}\n",
        "{{ ''.«__class__».__mro__ }}\n",
        "  «»{{ cols // 0 }}\n",
        "{{ cols }}\n  «»{% if cols %}\n",
        "\n// «»{{ '\\u202e' }}\n",
    ],
)
def test_in_tags(tmp_path: Path, text: str, is_snippet: bool) -> None:
    body, (line, column, length) = marked(text)
    lib = {"part.wgsl": body} if is_snippet else None
    with pytest.raises(WebnormError) as caught:
        shader_of(tmp_path, '{% include "lib/part.wgsl" %}\n' if is_snippet else body, lib)
    name, start = ("part.wgsl", 0) if is_snippet else ("mine.wgsl", START)
    assert where(caught.value) == (name, start + line, column, length)


@pytest.mark.parametrize(
    "text",
    [
        "summary = 'A'\n// «sumary» = 'A test.'\n",
        "summary = «3» # a comment\n",
        "summary = '' «x»\n",
        "summary = 'A'\n// differs = 'B'\n// rung = «[1, 2]» # one\n",
        "summary = 'A'\n// differs = 'B'\n// [tune]\n//  width = [1, 2, «-3»]\n",
        "summary = 'A'\n// differs = 'B'\n// tune = {a = [1], «if» = [2]}\n",
        "summary = 'A'\n// differs = 'B'\n// preference = '«rung + é»'\n",
        "summary = 'A'\n// differs = 'B'\n// layout = '«nothing»'\n",
        "summary = 'é'\n// differs = 'B'\n// ops = ['layer_norm', '«rms»']\n",
        "summary = 'é'\n// differs = 'B'\n// [derive]\n// «cols» = 'cols'\n",
        "«summary» = 'é'\n// differs = 'B'\n",
        "summary = 'é'\n// differs = 'B'\n// [[«pass»]]\n// entry_point = 'main'\n",
        "summary = 'é'\n// differs = 'B\n// é\t.«»\n",
        "summary = 'é'\n// differs = \"é«»\n",
    ],
)
def test_in_a_header(tmp_path: Path, text: str) -> None:
    body, place = marked(f"// /// webnorm\n// {text}// ///\n")
    path = tmp_path / "layer_norm" / "mine.wgsl"
    path.parent.mkdir()
    path.write_text(body)
    with pytest.raises(WebnormError) as caught:
        load(path)
    assert where(caught.value) == ("mine.wgsl", *place)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"// a\r\n// \xc3\xa9\xe9\n", (2, 5, 1)),
        ("// é\n/* é */ \u202e".encode(), (2, 9, 1)),
        (b"// /// webnorm\n/ a\n// ///\n", (2, 1, 3)),
        (b"body\n", (1, 1, 0)),
    ],
)
def test_in_what_is_no_kernel(tmp_path: Path, text: bytes, place: tuple[int, int, int]) -> None:
    path = tmp_path / "layer_norm" / "mine.wgsl"
    path.parent.mkdir()
    path.write_bytes(text)
    with pytest.raises(WebnormError) as caught:
        load(path)
    assert where(caught.value) == ("mine.wgsl", *place)


BODY = """\
{% macro twice(x) -%}
fn {{ x }}_of(v: f32) -> f32 { return v * 2.0; }
{%- endmacro %}
{% set name = "helper" %}
{% include "lib/part.wgsl" %}
    {{ twice(name) | indent(4) }}
@compute @workgroup_size(8)
fn main() {
    var y: f32 = 0.0;
STATEMENT
}
"""
REFUSED = (
    "\t/* é😀 */ y = «nothing» + 1.0;",
    "\t/* é😀 */ y = {{ cols }}.0 + «nothing» + 1.0; // {{ cols }}",
    "    {% if cols == 8 %}\ty = «helper_off»(1.0); {% endif %}",
    "\t/* 日 {{ cols }} */ y = {{ name }}_of({{ cols }}.0) {{- ' ' -}} + «{{ name }}_off»(1.0);",
    "\t/* é */ y = «{{ name }}»;",
)
# Mistakes that naga's validation finds, or that its parser marks at another part than Tint.
NAGA_ONLY = (
    "\t/* é日 */\ty = 1.0 «$» 2.0;",
    "\t/* é日 */\tvar a: array<f32, 4>; «a[{{ cols }}]» = 1.0;",
)


def refused(folder: Path, statement: str, is_snippet: bool) -> tuple[Shader, tuple[str, int, int, int]]:
    """Return a shader with a statement that no compiler accepts, and the place of the mistake."""
    part = "fn part() {\n    var y: f32 = 0.0;\nSTATEMENT\n}\n"
    text, (line, column, length) = marked((part if is_snippet else BODY).replace("STATEMENT", statement))
    body, part = (BODY, text) if is_snippet else (text, part)
    lib = {"part.wgsl": part.replace("STATEMENT", "")}
    name, start = ("part.wgsl", 0) if is_snippet else ("mine.wgsl", START)
    return shader_of(folder, body.replace("STATEMENT", ""), lib), (name, start + line, column, length)


@pytest.mark.parametrize("is_snippet", [False, True], ids=["kernel", "snippet"])
@pytest.mark.parametrize("statement", (*REFUSED, *NAGA_ONLY))
def test_in_what_naga_refuses(tmp_path: Path, device: Device, statement: str, is_snippet: bool) -> None:
    shader, place = refused(tmp_path, statement, is_snippet)
    with pytest.raises(WebnormError) as caught:
        compile_shader(device, shader)
    assert where(caught.value) == place


@needs_tint
def test_in_what_tint_refuses(tmp_path: Path) -> None:
    shaders, expected = [], []
    for number, statement in enumerate(REFUSED):
        (folder := tmp_path / str(number)).mkdir()
        shader, place = refused(folder, statement, is_snippet=bool(number % 2))
        shaders.append(shader)
        expected.append(place)
    verdicts = tint.check_shaders([tint.TintSource("", shader.text, ()) for shader in shaders])
    found = [verdict.messages[0].place(shader) for verdict, shader in zip(verdicts, shaders, strict=True)]
    assert [(Path(p.file).name, p.line, p.column, p.length) for p in found if p] == expected


HERE = '{% include "lib/part.wgsl" %}\n'


@pytest.mark.parametrize(
    ("text", "part", "said"),
    [
        ("const a = 1.0«» // é;\n\n" + HERE, "// b\nfn b() {}\n", 'expected `;`, found "fn" at PART:2:1'),
        ("const a = max(1.0«»\n" + HERE, "fn b() {}\n", 'expected `)`, found "fn" at PART:1:1'),
        ("const a = {{ cols }}«»\n" + HERE, "fn b() {}\n", 'expected `;`, found "fn" at PART:1:1'),
        ("fn a() { {\n}«»\n" + HERE, " fn b() {}\n", 'expected `}`, found "fn" at PART:1:2'),
        ("fn a() {«»\n" + HERE, "@compute @workgroup_size(1)", 'expected `}`, found "@" at PART:1:1'),
        ("fn a() {«»\n" + HERE, "var<workgroup> b: f32;\n", 'expected `}`, found "var" at PART:1:1'),
        (
            '{% from "lib/part.wgsl" import b %}\nfn a() { var x = 1.0«»\n  {{ b() }} }\n',
            "{% macro b() %}x = 2.0;{% endmacro %}",
            'expected `;`, found "x" at PART:1:16',
        ),
        (HERE + "fn b() {}\n", "const a = 1.0«»\n", 'expected `;`, found "fn" at MINE:10:1'),
        # The text before the mistake is complete.
        (HERE, "fn a() {}\n«}»\n", "expected global item"),
        ("fn a() {}\n" + HERE, "«}»\n", "expected global item"),
        ("fn a() { let x = 1.0;\n" + HERE + "}\n", "«)»\n", "expected statement"),
        ("fn a() { let x =\n" + HERE + ";}\n", "«;»\n", "expected expression, "),
        ("fn a(\n" + HERE + ") {}\n", "@«group»(0) b: u32\n", "unknown attribute: `group`"),
        # In this case both parts are in one file.
        ("fn a() {}\n" + HERE, "const b = 1.0\n«fn» c() {}\n", 'expected `;`, found "fn": fn c() {}'),
    ],
)
def test_text_missing_at_the_end_of_a_file_is_reported_there(
    tmp_path: Path, device: Device, text: str, part: str, said: str
) -> None:
    is_snippet = OPEN in part
    unmarked, (line, column, length) = marked(part if is_snippet else text)
    body, lib = (text, unmarked) if is_snippet else (unmarked, part)
    shader = shader_of(tmp_path, body, {"part.wgsl": lib})
    with pytest.raises(WebnormError) as caught:
        compile_shader(device, shader)
    name, start = ("part.wgsl", 0) if is_snippet else ("mine.wgsl", START)
    assert where(caught.value) == (name, start + line, column, length)
    folder = tmp_path.resolve()
    said = said.replace("PART", str(folder / "lib" / "part.wgsl"))
    assert f": {said.replace('MINE', str(folder / 'layer_norm' / 'mine.wgsl'))}" in str(caught.value)


def test_a_report_with_several_places() -> None:
    report = """
Shader validation error: Function [0] 'f' is invalid
  ┌─ :1:1
  │
1 │ ╭ fn f() -> f32 {
2 │ │     /* é日本 */ let x = 1u + 1.5;
  │ │                              ^^^ naga::ir::Expression [1]
3 │ │  return 1.0;
4 │ │ }
  │ ╰─^ naga::ir::Function [0]
  │
  = Expression [1] is invalid
"""
    lines = ["fn f() -> f32 {", "\t/* é日本 */\tlet x = 1u + 1.5;", " return 1.0;", "}"]
    said = "Function `f` is invalid: Expression `1.5` is invalid"
    assert read_report(report, lines) == CompilerReport(2, said, lines[1].index("1.5") + 1, 3)
    # If the report is about another text, the column is unknown.
    said = "Function `f` is invalid: Expression is invalid"
    assert read_report(report) == read_report(report, ["", "x"]) == CompilerReport(2, said)
    report = """
Shader '' parsing error: automatic conversions cannot convert elements of `u32` to `f32`
  ┌─ wgsl:1:3
  │
1 │   x = 1u;
  │   ^   ^^ this expression has type u32
  │   │
  │   a value with elements of type f32 is required here
"""
    assert read_report(report, ["  x = 1u;"])[2:] == (3, 1)
    assert read_report(report.replace("1:3", "2:3"), ["  x = 1u;"])[2:] == (7, 2)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("varience", "variance"),
        ("worgroupBarrier", "workgroupBarrier"),
        ("rsqrt", "inverseSqrt"),
        # A name that only a comment has, and names without a near one.
        ("commentd", None),
        ("rowss", None),
        ("foo", None),
        ("quantile", None),
    ],
)
def test_a_name_that_there_is_none_of_has_a_near_one(tmp_path: Path, name: str, meant: str | None) -> None:
    text = "fn f() {{\n  let variance = 1.0; /* rows */ // commented\n  let b = {}(variance);\n}}\n"
    shader = shader_of(tmp_path, text.format(name))
    complaint = f"no definition in scope for identifier: `{name}`"
    report = f"""
Shader '' parsing error: {complaint}
  ┌─ wgsl:3:11
  │
3 │   let b = {name}(variance);
  │           {"^" * len(name)} unknown identifier
"""
    message = str(shader.located_error(report))
    advice = f"; did you mean `{meant}`?" if meant else ""
    assert f": {complaint}{advice}: " in message


def test_no_name_is_near_one_that_is_too_long_for_a_slip_of_the_pen() -> None:
    """The time of a comparison is the product of the names' lengths."""
    for length, found in ((100, True), (101, False)):
        known = "q" * (length + 1)
        assert nearest(known[1:], [known]) == (known if found else None)


def test_the_place_of_a_line_and_of_what_has_none(tmp_path: Path) -> None:
    shader = shader_of(tmp_path, "\n\t{{ cols }} «\r\n\tb\n{{ 'c\\nd' }}e\n")
    file = str(tmp_path.resolve() / "layer_norm" / "mine.wgsl")
    assert shader.text == "\t8 «\n\tb\nc\nde\n"
    assert shader.place(1) == SourceLocation(file, START + 2, 2)
    assert shader.place(1, 2, 1) == SourceLocation(file, START + 2, 2, 10)
    assert shader.place(1, 2, 3) == SourceLocation(file, START + 2, 2, 12)
    assert shader.place(2) == SourceLocation(file, START + 3, 2)
    # The text after an expression's start also belongs to the expression.
    assert shader.place(4, 1, 1) == SourceLocation(file, START + 4, 1, 12)
    assert shader.place(4, 2, 1) == SourceLocation(file, START + 4, 13, 1)
    assert shader.place(0) is shader.place(5) is None


def test_a_place_in_a_file_that_has_changed_since_is_a_line(tmp_path: Path) -> None:
    body = "first\n  second\n"
    shader = shader_of(tmp_path, body)
    shader_of(tmp_path, f"{{{{ cols }}}} {body}")
    file = str(tmp_path.resolve() / "layer_norm" / "mine.wgsl")
    assert shader.place(1, 3, 2) == SourceLocation(file, START + 1)
    assert shader.place(2, 4, 2) == SourceLocation(file, START + 2, 4, 2)
    (tmp_path / "layer_norm" / "mine.wgsl").unlink()
    assert shader_of(tmp_path, body).place(1, 3, 2) == SourceLocation(file, START + 1, 3, 2)
    shader = shader_of(tmp_path, body)
    (tmp_path / "layer_norm" / "mine.wgsl").unlink()
    assert shader.place(1, 3, 2) == SourceLocation(file, START + 1)


def test_a_filter_that_changes_text_takes_its_place_away(tmp_path: Path) -> None:
    line = "a {% filter upper %}b c{% endfilter %} d {% filter replace('Q', 'x') %}fQx{% endfilter %}"
    shader = shader_of(tmp_path, f"{line}\n")
    assert shader.text == "a B C d fxx\n"
    places = [shader.place(1, column, 1) for column in range(1, 12)]
    exact = [line[place.column - 1] if place and place.length == 1 else "" for place in places]
    assert exact == ["a", " ", "", "", "", " ", "d", " ", "f", "", ""]


def test_a_filter_that_changes_the_marks_themselves_is_one_error(tmp_path: Path) -> None:
    """`upper` also changes the name of a file, and no file has that name."""
    body = '{% filter upper %}a\n{% endfilter %}{% include "lib/statistics.wgsl" %}\n'
    request = replace(shader_of(tmp_path, body).request, runs=True)
    for render in (templates.render, sandbox.render):
        with pytest.raises(WebnormError, match=r"mine\.wgsl: KeyError: '/"):
            render(request)


def test_utf16_units_are_characters() -> None:
    assert [characters("a😀é", units) for units in range(6)] == [0, 1, 1, 2, 3, 3]


def test_a_mistake_that_is_sent_keeps_its_place() -> None:
    error = WebnormError("a:1: b", SourceLocation("a", 1, 2, 3))
    sent = pickle.loads(pickle.dumps(error))
    assert (str(sent), sent.place) == (str(error), error.place)


def tint_report(place: str, said: str, drawn: str = "", call: str = "CreateShaderModule") -> str:
    """Return a message of Dawn with an error of Tint."""
    return f"Error while parsing WGSL: :{place} error: {said}\n{drawn}\n\n - While calling [Device].{call}()."


def test_reports_of_tint() -> None:
    lines = ["fn f() {", "  /* é日 */ let y: f32 = 1u;", "  let z = summ;", "let sum = 1.0;"]
    said = "cannot initialize 'let' of type 'f32' with value of type 'u32'"
    column = lines[1].index("y:") + 1
    # Columns count bytes, and Tint draws no carets below characters that are not ASCII.
    report = tint_report(f"2:{column + 3}", said, lines[1])
    assert read_report(report, lines) == CompilerReport(2, said, column, 0)
    assert mistyped(report, lines) == ("y", "u32")
    report = tint_report("3:11", "unresolved value 'summ'", f"{lines[2]}\n          ^^^^")
    said = "unresolved value 'summ'; did you mean `sum`?"
    assert read_report(report, lines) == CompilerReport(3, said, 11, 4)
    assert mistyped(report, lines) is None
    report = "a warning\n" + tint_report("9:1", "expected '}' for function body")
    assert read_report(report, lines) == CompilerReport(9, "expected '}' for function body", 1)
    report = (
        'Entry point ""ff"" doesn\'t exist in the shader module [ShaderModule].\n'
        ' - While validating compute stage ([ShaderModule], entryPoint: "ff").\n'
        "    at Validate (/source/ShaderModule.cpp:7)"
    )
    assert read_report(report, ["fn f() {}"]).complaint == "no entry point `ff`; did you mean `f`?"
    report = (
        "Workgroup size exceeds 256.\n - While initializing [ComputePipeline]\n    at Check (/source/a.cpp:7)"
    )
    assert read_report(report, lines) == CompilerReport(None, "Workgroup size exceeds 256.")
