"""Tensors that the library declares as `buffer`, and words of 8-bit tensors."""

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
from webnorm.kernels.headers.traits import KNOWN_FEATURES
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.op.registry import OPS

OP = '''"""The sum of each number, an integer and the bytes of a word."""

import numpy as np

from webnorm.op import define_op, integers, require, tensor

op = define_op(
    sizes={"rows": 8, "cols": 64},
    inputs=[
        tensor("x", "rows cols"),
        tensor("z", "cols", dtype="int32", draw=integers(-9, 9)),
        tensor("codes", "cols", dtype="uint8"),
    ],
    outputs=[tensor("y", "rows cols")],
    require=[require("cols % 4 == 0", "a word has four bytes")],
)


@op.reference
def added(x, z, codes):
    """Return the sums. All numbers of a word have the sum of its bytes."""
    return x + z + np.repeat(codes.reshape(-1, 4).sum(-1), 4)
'''
KERNEL = """// /// webnorm
// summary = "Four columns per invocation."
// [features]
// buffer_view = 1
// [derive]
// vector_width = 4
// [[pass]]
// entry_point = "main"
// workgroup_size = 64
// workgroup_count = "ceil_div(rows * cols, 256)"
// ///
{% set buffer_tensors = ["x", "z", "y"] %}
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = 4u * (64u * (workgroup_id.y * workgroups.x + workgroup_id.x) + lane);
    if (i >= params.rows * cols) {
        return;
    }
    // One view is of another type than the tensor, and one reads a scalar where others read a vec4.
    let column = i % cols;
    let integers = bitcast<vec4<i32>>(*bufferView<vec4<u32>>(&z, byte_z(column)));
    let total = dot4U8Packed(packed4_codes(column), 0x01010101u);
    let first = load_z(column) - integers.x;
    store4_y(i, load4_x(i) + vec4<f32>(integers + first) + f32(total));
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "buffered"
    own.mkdir()
    (own / "op.py").write_text(OP)
    (own / "views.wgsl").write_text(KERNEL)
    webnorm.load_op(own)
    return own


def rendered(folder: Path, dtype: str) -> Shader:
    traits = replace(GPU, features=frozenset(KNOWN_FEATURES))
    problem = OPS["buffered"].problem(rows=3, cols=64, dtype=dtype)
    kernel = load(folder / "views.wgsl")
    return render_shader(default_variant(kernel, problem, traits), problem, "browser", traits)


@pytest.mark.parametrize("dtype, of_x", [("float32", "buffer"), ("float16", "array<vec2<u32>>")])
def test_tensors_of_32_bits_become_buffers(folder: Path, dtype: str, of_x: str) -> None:
    declared = dict(re.findall(r"var<storage, \w+> (\w+): (.*);", rendered(folder, dtype).text))
    assert declared == {"x": of_x, "z": "buffer", "codes": "array<u32>", "y": of_x}


@pytest.mark.vulkan
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_views_run_in_dawn(folder: Path, dtype: str) -> None:
    if reason := dawn.missing_in_python():
        pytest.skip(reason)
    cases = [f"buffered-{name}" for name in ("cols-64", "cut-bindings")]
    found = webnorm.check("views", op="buffered", cases=cases, dtype=dtype, engine="dawn")
    assert {one.status for one in found.results} == {"pass"}, found.results
