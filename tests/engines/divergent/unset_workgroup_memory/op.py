"""The number of times that each number from 0 to 15 occurs in a row.

WGSL requires that workgroup memory starts as zeros. Tint, Firefox and Deno write these zeros. wgpu-native
does not, so that `divergent` continues the counts of an earlier workgroup.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#var-decls
"""

import numpy as np

from webnorm.op import case, define_op, integers, tensor

op = define_op(
    sizes={"rows": 16, "cols": 1000},
    inputs=[tensor("x", "rows cols", dtype="uint32", draw=integers(0, 16))],
    outputs=[tensor("y", "rows 16", dtype="uint32")],
    cases=[case("divergence", {"x": np.arange(48).reshape(3, 16) % 16}, source="each number once")],
)


@op.reference
def histogram(x):
    """Return the counts of each row."""
    return (x[:, :, None] == np.arange(16)).sum(1)
