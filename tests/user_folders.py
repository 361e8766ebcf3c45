"""Folders of ops as users write them, for tests."""

from __future__ import annotations

from pathlib import Path

OP = '''"""Twice the input."""
import numpy as np
from webnorm.op import case, define_op, integers, option, require, scalar, tensor, uniform

op = define_op(
    sizes={"rows": 16, "cols": 8},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def doubled(x):
    return 2 * x
'''
KERNEL = """// /// webnorm
// summary = "One invocation per element."
// [[pass]]
// entry_point = "main"
// workgroup_size = 64
// workgroup_count = "ceil_div(rows * cols, 64)"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) invocation: u32) {
    let i = (group.y * groups.x + group.x) * 64u + invocation;
    if (i < params.rows * cols) {
        store_y(i, 2.0 * load_x(i));
    }
}
"""


def write_op(folder: Path, op: str = OP, **kernels: str) -> Path:
    """Write the folder of an op with kernels by name; the default name is "naive"."""
    folder.mkdir(parents=True)
    for name, text in (kernels or {"naive": KERNEL}).items():
        (folder / f"{name}.wgsl").write_text(text)
    (folder / "op.py").write_text(op)
    return folder
