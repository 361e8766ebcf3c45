"""The difference of each number and the number before it; 0 comes before the first.

For the first number `divergent` reads x[-1], which is x[4294967295]. WGSL allows many values for such an
index: 0, or any element of the buffer. If the driver has robustBufferAccess2, as llvmpipe does, naga leaves
the index to the driver, which gives 0. On SwiftShader naga limits the index to the last element, and so
does Tint.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#out-of-bounds-access-sec
"""

import numpy as np

from webnorm.op import case, define_op, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="float32")],
    outputs=[tensor("y", "n", dtype="float32")],
    cases=[case("divergence", {"x": np.arange(3.0, 9.0)}, source="the first number is not 0")],
)


@op.reference
def difference(x):
    """Return x minus x shifted by one element."""
    return x - np.concatenate([np.zeros(1), x[:-1]])
