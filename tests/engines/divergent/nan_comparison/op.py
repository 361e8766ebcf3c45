"""1 for each number that reaches the threshold, else 0; NaN does not reach it.

Why engines differ: WGSL lets an implementation assume that there are no NaN. `step(edge, x)` is then `x < edge ? 0 : 1`
as well as `x >= edge ? 1 : 0`. llvmpipe computes the former, SwiftShader the latter.
WGSL: "15.7.2. Differences from IEEE-754", "17.5.68. step".
"""

import numpy as np

from webnorm.op import case, define_op, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="float32")],
    outputs=[tensor("y", "n", dtype="float32")],
    cases=[case("nan", {"x": np.array([np.nan, 0.0, 0.5, 1.0, np.nan])})],
)


@op.reference
def reached(x):
    """Return the mask of numbers from 0.5 on."""
    return np.where(x >= 0.5, 1.0, 0.0)
