"""The sum of the eight columns of each row.

`divergent` assumes that a subgroup has eight invocations. The driver chooses this number: it is 8 on
llvmpipe with vectors of 256 bits, and 4 on SwiftShader. Firefox and Deno offer no subgroups.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#subgroups
- https://www.w3.org/TR/WGSL/#subgroup-builtin-functions
"""

import numpy as np

from webnorm.op import case, define_op, integers, tensor

op = define_op(
    sizes={"rows": 64},
    inputs=[tensor("x", "rows 8", dtype="uint32", draw=integers(0, 1000))],
    outputs=[tensor("y", "rows", dtype="uint32")],
    cases=[case("divergence", {"x": np.arange(40).reshape(5, 8)}, source="two subgroups of four")],
)


@op.reference
def total(x):
    """Return the sum over the columns."""
    return x.sum(-1)
