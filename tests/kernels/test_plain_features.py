"""Plain WGSL with directives, fixed subgroup sizes, buffers and linear indices."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import dawn
import webnorm
from testbed import GPU
from webnorm.choice.defaults import default_variant
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import BROWSER, KNOWN_FEATURES, Traits
from webnorm.kernels.rendering.render import Shader, Target, render_shader
from webnorm.op.registry import OPS

OP = '''"""The double of each number."""

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"n": 64},
    inputs=[tensor("x", "n", dtype="float32")],
    outputs=[tensor("y", "n", dtype="float32")],
    batch=None,
)


@op.reference
def double(x):
    """Return 2 * x."""
    return 2 * x
'''
TEXT = """// Directives of an app.
enable f16, subgroups;
requires subgroup_id, packed_4x8_integer_dot_product;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let i = 64u * (id.x + id.y * count.x) + lane;
    if (i < arrayLength(&y)) { y[i] = f32(f16(2)) * x[i] + f32(min(subgroup, 0u)); }
}
"""
VIEWS = """requires buffer_view;
requires linear_indexing;
@group(0) @binding(0) var<storage, read> x: buffer;
@group(0) @binding(1) var<storage, read_write> y: buffer;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_index) i: u32) {
    if (i < bufferLength(&y) / 4u) {
        let values = bufferView<array<f32>>(&x, 0u);
        *bufferView<f32>(&y, 4u * i) = 2.0 * values[i];
    }
}
"""
EVERYTHING = replace(GPU, features=frozenset(KNOWN_FEATURES))


def plain(folder: Path, text: str) -> Kernel:
    """Return a kernel of plain WGSL, for an op that is loaded with it."""
    own = folder / "plain_double"
    own.mkdir()
    (own / "op.py").write_text(OP)
    (own / "plain.wgsl").write_text(text)
    (own / "plain.toml").write_text('workgroup_count = "ceil_div(n, 64)"')
    webnorm.load_op(own)
    return load(own / "plain.wgsl")


def rendered(kernel: Kernel, target: Target, traits: Traits = EVERYTHING) -> Shader:
    problem = OPS["plain_double"].problem(n=100)
    return render_shader(default_variant(kernel, problem, traits), problem, target, traits)


def refusal(kernel: Kernel, traits: Traits) -> str | None:
    problem = OPS["plain_double"].problem(n=100)
    return default_variant(kernel, problem, traits).refusal(problem, traits)


def directives(shader: Shader) -> list[str]:
    return re.findall(r"^(?:enable|requires).*", shader.text, re.MULTILINE)


def test_directives_are_those_that_the_compiler_accepts(tmp_path: Path) -> None:
    kernel = plain(tmp_path, TEXT)
    shader = rendered(kernel, "browser")
    assert shader.features == {"shader-f16", "subgroups", "packed_4x8_integer_dot_product"}
    assert directives(shader) == TEXT.splitlines()[1:3]
    native = rendered(kernel, "native")
    assert directives(native) == ["enable f16;"]
    # Errors have the lines of the file.
    assert native.text.count("\n") == TEXT.count("\n")


def test_an_unknown_directive_is_the_compilers_business(tmp_path: Path) -> None:
    kernel = plain(tmp_path, "enable dual_source_blending;\n" + TEXT)
    assert directives(rendered(kernel, "native")) == ["enable dual_source_blending;", "enable f16;"]


def test_a_directive_needs_its_feature(tmp_path: Path) -> None:
    kernel = plain(tmp_path, TEXT)
    traits = replace(EVERYTHING, features=EVERYTHING.features - {"shader-f16"})
    assert refusal(kernel, EVERYTHING) is None
    assert refusal(kernel, traits) == "needs the feature 'shader-f16', which the adapter lacks"


def test_directives_run_in_this_process(tmp_path: Path) -> None:
    plain(tmp_path, TEXT)
    if not {"shader-f16", "subgroups"} <= webnorm.find_adapter().traits.features:
        pytest.skip("the adapter lacks the features")
    found = webnorm.check("plain", op="plain_double", cases="plain_double-n-257")
    assert [one.status for one in found.results] == ["pass"]


def test_the_size_of_subgroups_is_read_from_the_text(tmp_path: Path) -> None:
    kernel = plain(tmp_path, TEXT.replace("@compute", "@subgroup_size(32) @compute"))
    traits = replace(EVERYTHING, subgroup_min_size=32, subgroup_max_size=32)
    assert rendered(kernel, "browser", traits).passes[0].subgroup_size == 32
    assert refusal(kernel, replace(traits, subgroup_max_size=16, subgroup_min_size=16)) == (
        "needs subgroups of 32 invocations; the adapter has subgroups of 16"
    )


@pytest.mark.parametrize("size", ["0x20", "2 * LANES", "LANES + 16u"])
def test_the_size_of_subgroups_may_be_an_expression(size: str, tmp_path: Path) -> None:
    text = TEXT.replace("@compute", f"const LANES = 16u;\n@subgroup_size({size}) @compute")
    traits = replace(EVERYTHING, subgroup_min_size=16, subgroup_max_size=16)
    assert refusal(plain(tmp_path, text), traits) == (
        "needs subgroups of 32 invocations; the adapter has subgroups of 16"
    )


def test_buffers_and_linear_indices(tmp_path: Path) -> None:
    kernel = plain(tmp_path, VIEWS)
    shader = rendered(kernel, "browser")
    assert "if (i < 400u / 4u)" in shader.text
    # The plan may choose a grid of two dimensions.
    assert shader.passes[0].grid == ()
    assert refusal(kernel, BROWSER) == "needs the feature 'buffer_view', which the engine's WGSL lacks"


@pytest.mark.vulkan
def test_buffers_and_linear_indices_run_in_dawn(tmp_path: Path) -> None:
    if reason := dawn.missing_in_python():
        pytest.skip(reason)
    plain(tmp_path, VIEWS)
    cases = [f"plain_double-{name}" for name in ("n-61", "n-257")]
    found = webnorm.check("plain", op="plain_double", cases=cases, engine="dawn")
    assert {one.status for one in found.results} == {"pass"}
