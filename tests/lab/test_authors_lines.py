"""Errors in a built-in snippet are reported at the author's line, followed by the snippet's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import GPU
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import create_module
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import BROWSER
from webnorm.kernels.rendering.render import render_shader
from webnorm.kernels.rendering.snippets import CallGraph
from webnorm.lab.verify.races import find_fault
from webnorm.op.op import make_inputs
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.web import tint

KERNEL = """\
// /// webnorm
// summary = "A test."
// differs = "Nothing."
// layout = "row_per_workgroup"
// [derive]
// vector_width = 4
// ///
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/norm.wgsl" %}
{{ row_reduction("row_sum", "f32") }}
@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}
    var sum = Vec();
    for (var j = 0u; j < STEPS; j++) {
        sum += load_input(row, j, thread);
    }
    let mean = row_sum(total(sum), place, lane, subgroup_size) * PER_COLUMN;
    let rstd = inverseSqrt(1.0 + params.eps);
    {% call(h) write_row(low="0.0") %}({{ h }} - mean) * rstd{% endcall %}
    {% endcall %}
}
"""
PROBLEM = NormProblem(rows=4, cols=768)


def kernel_of(folder: Path, old: str = "", new: str = "") -> Kernel:
    assert old in KERNEL
    path = folder / "layer_norm" / "mine.wgsl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(KERNEL.replace(old, new, 1))
    return load(path)


def line_of(text: str) -> int:
    return KERNEL[: KERNEL.index(text)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "tag", "snippet"),
    [
        ("@compute", '{% include "lib/row.wgsl" %}\n@compute', "@compute", "lib/geometry.wgsl:"),
        ('"row_sum", "f32"', '"row_sum", "vec9<f32>"', '"row_sum", "f32"', "lib/reduce.wgsl:"),
        ('"row_sum", "f32"', '"row_sum", "f32", "nothing"', '"row_sum", "f32"', "lib/reduce.wgsl:"),
        ('low="0.0"', 'low="nothing"', 'low="0.0"', "lib/write.wgsl:"),
        ('    {% include "lib/builtins.wgsl" %}\n', "\n", "call each_row", "lib/place.wgsl:"),
    ],
)
def test_errors_of_naga_in_a_snippet(
    device: Device, tmp_path: Path, old: str, new: str, tag: str, snippet: str
) -> None:
    problem = NormProblem(rows=4, cols=768, options=NormOptions(return_stats="low" in old))
    kernel = kernel_of(tmp_path, old, new)
    shader = render_shader(default_variant(kernel, problem, GPU), problem, "native", GPU)
    with pytest.raises(WebnormError) as caught:
        create_module(device, shader)
    place = caught.value.place
    assert place is not None and place.file == str(kernel.path) and place.line == line_of(tag)
    marked = kernel.path.read_text().splitlines()[place.line - 1][place.column - 1 :][: place.length]
    assert marked.startswith("{") and marked.endswith("}")
    message = str(caught.value)
    assert message.startswith(f"{place.file}:{place.line}: ") and f", in wgsl/{snippet}" in message


def test_errors_of_tint_in_a_snippet(tmp_path: Path) -> None:
    """If not all invocations call a reduction, the error names the call, not the barrier in the snippet."""
    if tint.tint_unavailable():
        pytest.skip(str(tint.tint_unavailable()))
    mean = "    let mean = row_sum(total(sum), place, lane, subgroup_size) * PER_COLUMN;"
    inner = mean.replace("let ", "")
    kernel = kernel_of(tmp_path, mean, f"    var mean = 0.0;\n    if (place == 0u) {{\n{inner}\n    }}")
    shader = render_shader(default_variant(kernel, PROBLEM, BROWSER), PROBLEM, "browser", BROWSER)
    (verdict,) = tint.check_shaders([tint.source_of("mine", shader)])
    errors = [message.located_error(shader) for message in verdict.messages if message.refuses]
    assert errors and all(one.place is not None and one.place.file == str(kernel.path) for one in errors)
    assert any("in wgsl/lib/reduce.wgsl:" in str(one) for one in errors)
    assert errors[0].place is not None and errors[0].place.line == line_of("let mean") + 2


def test_a_reduction_that_is_called_twice_has_a_hint_of_its_own(device: Device, tmp_path: Path) -> None:
    second = "    let rstd = inverseSqrt(row_sum(total(sum), place, lane, subgroup_size) + params.eps);"
    kernel = kernel_of(tmp_path, "    let rstd = inverseSqrt(1.0 + params.eps);", second)
    inputs = make_inputs(kernel.op, PROBLEM)
    found = find_fault(device, default_variant(kernel, PROBLEM, device.traits), PROBLEM, inputs, ())
    assert found is not None and found.place.file == str(kernel.path)
    one, two = line_of("let mean"), line_of("let rstd")
    assert found.place.line == two and found.text.startswith("a race: row_sum_partials[")
    assert f"`row_sum`, called at lines {one} and {two}, has memory for one call per row" in found.text
    assert ", in wgsl/lib/reduce.wgsl:" in found.text
    # Two reductions, or one reduction of both values, do not race.
    once = kernel_of(tmp_path)
    assert find_fault(device, default_variant(once, PROBLEM, device.traits), PROBLEM, inputs, ()) is None


def test_calls_are_followed_through_the_library() -> None:
    text = """\
const WIDTH = reduced(1.0);
fn reduced(a: f32) -> f32 { return a; }
fn joined(a: f32) -> f32 {
    return reduced(a);  // fn begins
}
fn main() {
    /* reduced(1.0) */ y = joined(1.0);
    // reduced(2.0)
    y = not_reduced(1.0) + reduced (2.0);
    y = (3.0);
}
"""
    functions = CallGraph(text.splitlines(), [at < 5 for at in range(11)])
    assert [functions.around(line) for line in range(1, 8)] == ["", "reduced", *["joined"] * 3, "", ""]
    assert functions.calls("reduced") == [7, 9] and functions.calls("joined") == [7]
    assert CallGraph(["/*"], [True]).around(1) == "" and CallGraph(["/*"], [True]).calls("a") == []
