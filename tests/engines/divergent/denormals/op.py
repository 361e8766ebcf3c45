"""1 for each number that is not 0, else 0.

Why engines differ: WGSL lets an implementation replace denormals (numbers below 2^-126) by 0 in inputs and results of
any operation, including comparisons. SwiftShader does, and llvmpipe does not.
WGSL: "15.7.2. Differences from IEEE-754".
"""

import numpy as np

from webnorm.op import case, define_op, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="float32")],
    outputs=[tensor("mask", "n", dtype="uint32")],
    cases=[case("below-the-normal-numbers", {"x": np.array([0.0, -0.0, 1e-40, -1e-40, 2.0**-149, 2.0**-126])})],
)


@op.reference
def is_nonzero(x):
    """Return the mask of numbers that are not 0."""
    return (x != 0).astype(np.int64)
