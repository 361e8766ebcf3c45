"""How often each number from 0 to 15 occurs in a row.

Why engines differ: WGSL says that workgroup memory starts as zeros. Dawn and the browsers clear it before each
workgroup; the native library wgpu-native does not, for speed.
WGSL: "7.3. var Declarations" (initial values), "14.3. Memory Model" (workgroup address space).
"""

import numpy as np

from webnorm.op import define_op, integers, tensor

op = define_op(
    sizes={"rows": 16, "cols": 1000},
    inputs=[tensor("x", "rows cols", dtype="uint32", draw=integers(0, 16))],
    outputs=[tensor("y", "rows 16", dtype="uint32")],
)


@op.reference
def histogram(x):
    """Return the counts of each row."""
    return (x[:, :, None] == np.arange(16)).sum(1)
