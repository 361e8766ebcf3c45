"""`webnorm new-op`: create the folder of a new op."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from webnorm.cli.terminal.screen import Screen, escaped_line
from webnorm.errors import WebnormError, path_argument, shell_command

# Softmax is typical: it has reductions, a scalar, and a likely mistake.
_OP = '''"""Softmax over the last axis."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    # The sizes, with the values that a benchmark uses.
    sizes={"rows": 4096, "cols": 1024},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    scalars=[scalar("scale", 1.0)],
)


@op.reference
def reference(x, scale):
    """Return the expected output, from float64 arrays."""
    e = np.exp(scale * (x - x.max(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


@op.mistake("leaves the last column out of the sum")
def without_last_column(x, scale):
    """Return the output of a kernel with this mistake, which `webnorm play` then names."""
    e = np.exp(scale * (x - x.max(-1, keepdims=True)))
    return e / e[..., :-1].sum(-1, keepdims=True)
'''
_KERNEL = """// /// webnorm
// summary = "One invocation per row, three sweeps over memory."
// rung = 1
// [tune]
// workgroup_size = [64, 128, 256]
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows, workgroup_size)"
// iterations = "3 * cols"
// [accuracy]
// serial_terms = "cols"
// ///

// `params` contains the scalars and `rows`, the batch size. The other size, `cols`, is a constant.
// Elements are loaded and stored as f32, whatever their storage type.
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
) {
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let row = workgroup * {{ workgroup_size }}u + invocation;
    if (row >= params.rows) {
        return;
    }
    let first = row * cols;
    var largest = load_x(first);
    for (var i = 1u; i < cols; i++) {
        largest = max(largest, load_x(first + i));
    }
    var sum = 0.0;
    for (var i = 0u; i < cols; i++) {
        sum += exp(params.scale * (load_x(first + i) - largest));
    }
    for (var i = 0u; i < cols; i++) {
        store_y(first + i, exp(params.scale * (load_x(first + i) - largest)) / sum);
    }
}
"""


def new_op(
    name: Annotated[str, Argument(help="The op's name: letters, digits and _, starting with a letter.")],
    out: Annotated[
        Path,
        Option(metavar="DIR", help="Set the folder of your ops. The files are DIR/NAME/op.py and a kernel."),
    ] = Path("kernels"),
) -> None:
    """The new op computes a softmax. Change the reference in op.py first, and then the kernel."""
    from webnorm.files.atomic import unwritable, write_text
    from webnorm.op.definition import check_free
    from webnorm.op.packaged_ops import OP_FILE
    from webnorm.op.registry import OPS

    check_free(name, "NAME")
    # A folder can take the place of an op that has an op.py itself, such as softmax.
    if name in OPS and OPS[name].source is None:
        raise WebnormError(f"NAME is {name!r}, an op of webnorm; expected another name")
    folder = out / name
    if os.path.lexists(folder):
        raise WebnormError(f"{folder} already exists; expected another NAME, or another folder with --out")
    try:
        folder.mkdir(parents=True)
        write_text(folder / "naive.wgsl", _KERNEL)
        # Written last, because this file makes the folder an op.
        write_text(folder / OP_FILE, _OP)
    except OSError as error:
        raise unwritable(folder, error) from error
    console = Screen()
    console.print(
        escaped_line(f"wrote {folder / OP_FILE} and {folder / 'naive.wgsl'}: a softmax to start from.")
    )
    console.print("Check and time the kernels of the folder, and watch one while you change it:")
    where = path_argument(folder)
    for command in (
        ("check", "--op", where),
        ("bench", "--op", where),
        ("play", path_argument(folder / "naive.wgsl")),
    ):
        console.print(f"  webnorm {shell_command(command)}", soft_wrap=True)
