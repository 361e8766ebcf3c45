from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from handmade import HEADER, shader_of
from testbed import GPU, KERNELS, SOFTWARE, STABLE, kernel_named, suited
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.kernels.rendering import sandbox, templates
from webnorm.kernels.rendering.render import RenderCache, Shader, render_shader
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.web.package.native import native_text


def places(shader: Shader) -> dict[str, str]:
    """Return each line of the text with the name and line of its source."""
    lines = shader.text.splitlines()
    return {
        line.strip(): f"{Path(file).name}:{number}"
        for line, (file, number) in zip(lines, shader.origins, strict=True)
    }


def test_the_source_map_through_include_loop_macro_and_indent(tmp_path: Path) -> None:
    body = """first
{% include "lib/part.wgsl" %}
{% from "lib/macro.wgsl" import twice with context %}

{% for k in range(2) %}
loop {{ k }}
{% endfor %}
{% if cols == 8 %}
    {{ twice("a") | indent(4) }}
{% endif %}
{# a comment
   of two lines -#}
last
"""
    lib = {
        "part.wgsl": "{# only a comment #}\npart {{ cols }}\n\nafter\n",
        "macro.wgsl": "{% macro twice(x) %}\none {{ x }}\ntwo {{ x }}\n{% endmacro %}\n",
    }
    shader = shader_of(tmp_path, body, lib)
    start = len(HEADER.splitlines())
    assert places(shader) == {
        "first": f"mine.wgsl:{start + 1}",
        "part 8": "part.wgsl:2",
        "": f"mine.wgsl:{start + 4}",
        "after": "part.wgsl:4",
        "loop 0": f"mine.wgsl:{start + 6}",
        "loop 1": f"mine.wgsl:{start + 6}",
        "one a": "macro.wgsl:2",
        "two a": "macro.wgsl:3",
        "last": f"mine.wgsl:{start + 13}",
    }
    assert "        two a" not in shader.text and "    two a" in shader.text


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_every_plain_line_stands_in_its_source(kernel: Kernel) -> None:
    problem = suited(kernel, NormProblem(rows=4, cols=199))
    shader = render_shader(default_variant(kernel, problem, GPU), problem, "native", GPU)
    sources: dict[str, list[str]] = {}
    checked = 0
    written = "".join(path.read_text() for path in (wgsl_root() / "lib").glob("*.wgsl"))
    gone = [name for name in re.findall(r"^fn (\w+)\(", written, re.M) if f"fn {name}(" not in shader.text]
    for line, (file, number) in zip(shader.text.splitlines(), shader.origins, strict=True):
        path = wgsl_root().parent / file
        source = sources.setdefault(file, path.read_text().splitlines())[number - 1]
        if any(re.search(rf"\b{name}\(", source) for name in gone):
            continue  # the call is only one of its arguments, or another call
        if "{" + "{" not in source and "{" + "%" not in source:
            assert line.strip() == source.strip(), (file, number)
            checked += 1
        else:
            literal = re.split(r"\{\{.*?\}\}|\{%.*?%\}", source)
            assert all(part.strip() in line for part in literal if len(part.strip()) > 2), (file, number)
    assert checked > 5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{{ nothing }}\n", "mine.wgsl:9: 'nothing' is undefined"),
        ("\n\n{% if %}\n", "mine.wgsl:11: "),
        ("{{ colls }}\n", "mine.wgsl:9: 'colls' is undefined; did you mean 'cols'?"),
        ('{% include "lib/interfaces.wgsl" %}\n', "in its folders; did you mean 'lib/interface.wgsl'?"),
        ('\n{% include "lib/none.wgsl" %}\n', "mine.wgsl:10: includes 'lib/none.wgsl'"),
        ("{{ cols // 0 }}\n", "mine.wgsl:9: "),
        ("{{ ''.__class__.__mro__ }}\n", "mine.wgsl:9: access to attribute '__class__'"),
        ("{{ lipsum.__globals__ }}\n", "mine.wgsl:9: access to attribute '__globals__'"),
        ("{{ rows }}\n", "mine.wgsl:9: 'rows' is undefined"),
    ],
)
def test_template_mistakes_have_file_and_line(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(WebnormError) as caught:
        shader_of(tmp_path, body)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("a\n{{ nothing }}\n", ":2: 'nothing' is undefined"),
        ("a\n{% if %}\n", ":2: Expected an expression"),
        ("a\n{% include 'lib/none.wgsl' %}\n", ":2: includes 'lib/none.wgsl'"),
        (
            "{% include 'lib/part.wgsl' %}\n",
            ":1: cannot include 'lib/part.wgsl': circular: lib/part.wgsl -> lib/part.wgsl",
        ),
    ],
)
def test_mistakes_in_a_users_snippet_name_the_users_file(tmp_path: Path, part: str, message: str) -> None:
    with pytest.raises(WebnormError) as caught:
        shader_of(tmp_path, '{% include "lib/part.wgsl" %}\n', {"part.wgsl": part})
    assert str(caught.value).startswith(f"{tmp_path.resolve()}/lib/part.wgsl{message}")
    assert "\n" not in str(caught.value)


def test_files_are_named_so_that_they_can_be_opened(tmp_path: Path) -> None:
    body = '{% include "lib/part.wgsl" %}\n{% include "lib/interface.wgsl" %}\n'
    shader = shader_of(
        tmp_path, "{% set vector_width = 1 %}{% set subgroups = 0 %}\n" + body, {"part.wgsl": "a\n"}
    )
    files = {file for file, _ in shader.origins}
    assert {str(tmp_path.resolve() / "lib" / "part.wgsl"), "wgsl/lib/interface.wgsl"} <= files


def test_webnorm_behind_a_link_is_still_named_wgsl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "link"
    try:
        link.symlink_to(wgsl_root(), target_is_directory=True)
    except OSError:
        pytest.skip("this system lets no test make a symbolic link")
    monkeypatch.setattr("webnorm.kernels.rendering.render.wgsl_root", lambda: link)
    test_a_mistake_in_webnorms_own_snippet(tmp_path)


def test_a_mistake_in_webnorms_own_snippet(tmp_path: Path) -> None:
    said = r"^wgsl/lib/dtype\.wgsl:\d+: 'vector_width' is undefined; .* define it in \[tune\] or \[derive\]"
    with pytest.raises(WebnormError, match=said):
        shader_of(tmp_path, '{% include "lib/interface.wgsl" %}\n')


def test_a_macro_that_does_not_see_the_names_of_the_header(tmp_path: Path) -> None:
    lib = {"macro.wgsl": "{% macro shown() %}{{ dtype }}{% endmacro %}\n"}
    body = '{% from "lib/macro.wgsl" import shown CONTEXT %}\n// {{ shown() }}\n'
    assert "// float32" in shader_of(tmp_path, body.replace("CONTEXT", "with context"), lib).text
    with pytest.raises(WebnormError, match=r"1: 'dtype' is undefined; its macro .* without `with context`$"):
        shader_of(tmp_path, body.replace("CONTEXT", ""), lib)


def test_a_misspelt_import_is_reported_at_its_place(tmp_path: Path) -> None:
    lib = {"rows.wgsl": "{% macro each_row() %}{% endmacro %}\n"}
    body = '\n{% from "lib/rows.wgsl" import eachrow as each %}\n\n{{ each() }}\n'
    with pytest.raises(WebnormError) as caught:
        shader_of(tmp_path, body, lib)
    message = str(caught.value)
    assert message.endswith(":10: imports 'eachrow', which is not in lib/rows.wgsl; did you mean 'each_row'?")
    place = caught.value.place
    assert place is not None
    assert (place.line, place.column, place.length) == (10, body.index("eachrow"), len("eachrow"))


VALID = """
struct Params { rows: u32, start: u32, eps: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
{% include "lib/part.wgsl" %}
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) i: u32) {
    y[i] = helper(x[i]);
}
"""
HELPER = "// a helper\nfn helper(v: f32) -> f32 {\n    return v;\n}\n"


def test_a_valid_shader_compiles(tmp_path: Path, device: Device) -> None:
    compile_shader(device, shader_of(tmp_path, VALID, {"part.wgsl": HELPER}))


@pytest.mark.parametrize(
    ("old", "new", "place", "quoted"),
    [
        ("return v;", "return v", "part.wgsl:4", "}"),
        ("return v;", "return vv;", "part.wgsl:3", "return vv;"),
        ("return v;", "return 1u;", "part.wgsl:3", "return 1u;"),
        ("return v;", "let k: i32 = 3u; return v;", "part.wgsl:3", "let k: i32 = 3u; return v;"),
        ("y[i] = helper(x[i]);", "y[i] = helper(i);", "mine.wgsl:19", "y[i] = helper(i);"),
        ("y[i] = helper(x[i]);", "x[i] = 1.0;", "mine.wgsl:19", "x[i] = 1.0;"),
        ("y[i] = helper(x[i]);", "y[i] = vec4<f32>(x[i]);", "mine.wgsl:19", "y[i] = vec4<f32>(x[i]);"),
        ("y[i] = helper(x[i]);", "y[i] == ;", "mine.wgsl:19", "y[i] == ;"),
    ],
)
def test_compile_errors_name_the_template_line(
    tmp_path: Path, device: Device, old: str, new: str, place: str, quoted: str
) -> None:
    body, helper = VALID.replace(old, new), HELPER.replace(old, new)
    assert (body, helper) != (VALID, HELPER)
    with pytest.raises(WebnormError) as caught:
        compile_shader(device, shader_of(tmp_path, body, {"part.wgsl": helper}))
    message = str(caught.value)
    folder = tmp_path.resolve() / ("lib" if place.startswith("part") else "layer_norm")
    assert message.startswith(f"{folder}/{place}: ")
    assert message.endswith(f": {quoted}")
    assert "\n" not in message
    assert "┌" not in message


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_targets(kernel: Kernel) -> None:
    for options in (NormOptions(), NormOptions(weight=False, bias=False)):
        problem = suited(kernel, NormProblem(rows=4, cols=96, options=options))
        native = render_shader(default_variant(kernel, problem, GPU), problem, "native", GPU)
        browser = render_shader(default_variant(kernel, problem, BROWSER), problem, "browser", BROWSER)
        assert "enable" not in native.text
        for directive in ("enable subgroups;", "requires subgroup_id;"):
            assert (directive in browser.text) == ("subgroups" in browser.features)
        same = render_shader(browser.variant, problem, "native", BROWSER)
        assert native_text(browser).text.split() == same.text.split()
        assert bool(re.search(r"\bweight\b", native.text)) == (options.weight and kernel.op.name != "copy")


def test_workgroup_memory_is_counted() -> None:
    def size_in(dtype: str, name: str, **constants: int) -> int:
        kernel, problem = kernel_named(name), NormProblem(rows=4, cols=1024, dtype=dtype)
        variant = default_variant(kernel, problem, GPU)
        variant = type(variant)(kernel, {**variant.constants, **constants})
        return render_shader(variant, problem, "native", GPU).workgroup_bytes

    size = partial(size_in, "float32")
    assert size("naive") == 0
    assert size("two_pass", threads_per_row=256) == 256 * 8
    assert size("welford", threads_per_row=64) == 64 * 16
    rows = {"rows_per_workgroup": 1, "sweeps": 2, "parked": 0}
    assert size("registers", threads_per_row=128, **rows) == 32 * 4 + 32 * 8
    assert size("registers", threads_per_row=128, **rows | {"subgroups": 0}) == 128 * 4 + 128 * 8
    assert size("registers", threads_per_row=4, **rows | {"rows_per_workgroup": 8, "vector_width": 4}) == 0
    # Two of eight Vecs wait in memory. They take half of the bytes if two values share a word.
    waiting = rows | {"threads_per_row": 32, "parked": 2, "vector_width": 4}
    sums = size("registers", **waiting) - 2 * 32 * 16
    assert 0 < sums < 200 and size_in("float16", "registers", **waiting) == 2 * 32 * 8 + sums


def test_too_much_workgroup_memory_is_refused(tmp_path: Path, device: Device) -> None:
    body = VALID.replace("{% include", "var<workgroup> much: array<vec4<f32>, 5000>;\n{% include")
    # Memory that no entry point reaches does not count.
    assert len(compile_shader(device, shader_of(tmp_path, body, {"part.wgsl": HELPER}))) == 1
    body = body.replace("helper(x[i])", "helper(x[i]) + much[i].x")
    with pytest.raises(WebnormError, match="uses 80000 bytes of workgroup memory; the limit is"):
        compile_shader(device, shader_of(tmp_path, body, {"part.wgsl": HELPER}))


@pytest.mark.parametrize("traits", [GPU, SOFTWARE, BROWSER], ids=["gpu", "software", "browser"])
@pytest.mark.parametrize("kernel", STABLE, ids=lambda kernel: kernel.label)
def test_long_rows_do_not_make_long_texts(kernel: Kernel, traits: Traits) -> None:
    """The renderer limits the unrolled steps, because llvmpipe compiled a thousand lines for minutes.

    A GPU's driver takes a second, and for odd rows its fastest text may go element by element.
    """
    most = 600 if traits.software else 1000
    for cols in (4096, 20001, 70001):
        problem = kernel.op.problem(2, cols)
        variant = default_variant(kernel, problem, traits)
        if variant.refusal(problem, traits) is None:
            assert len(render_shader(variant, problem, "native", traits).text.splitlines()) < most


@pytest.mark.parametrize("where", [templates, sandbox])
def test_a_text_is_taken_again_where_nothing_that_a_template_looks_up_is_other(
    where: ModuleType, tmp_path: Path
) -> None:
    """The kernel looks up values, and so do a snippet with context and a macro at its call."""
    body = """{% from "lib/macro.wgsl" import has with context %}
{{ cols }} {{ has() }}
{% include "lib/part.wgsl" %}
"""
    lib = {
        "macro.wgsl": "{% macro has() %}{{ has_subgroups }}{% endmacro %}",
        "part.wgsl": "{{ dtype }}",
    }
    first = shader_of(tmp_path, body, lib).request
    found = where.render(first)
    assert found.names >= {"cols", "has_subgroups", "dtype"}
    texts = RenderCache()
    texts.keep(first, found)

    def known(**changed: object) -> bool:
        return texts.find(replace(first, context={**first.context, **changed})) is not None

    assert known() and known(software=1, max_invocations=7)
    assert not any(known(**{name: 7}) for name in ("cols", "has_subgroups", "dtype", "tracing"))
    assert texts.find(replace(first, runs=True)) is None
