"""Kernels written for a test."""

from __future__ import annotations

from pathlib import Path

from patience import write_later
from testbed import GPU
from webnorm.choice.defaults import default_variant
from webnorm.kernels.headers.header import load
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.ops.norms.problem import NormProblem

HEADER = """// /// webnorm
// summary = "A test."
// differs = "Nothing."
// [[pass]]
// entry_point = "main"
// workgroup_size = "8"
// workgroup_count = "rows"
// ///
"""


SIMPLE = NormProblem(rows=2, cols=8)


def shader_of(folder: Path, body: str, lib: dict[str, str] | None = None) -> Shader:
    path = folder / "layer_norm" / "mine.wgsl"
    path.parent.mkdir(exist_ok=True)
    write_later(path, HEADER + body)
    (folder / "lib").mkdir(exist_ok=True)
    for name, text in (lib or {}).items():
        write_later(folder / "lib" / name, text)
    return render_shader(default_variant(load(path), SIMPLE, GPU), SIMPLE, "native", GPU)
