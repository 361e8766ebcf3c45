"""1 for each number of at least 0.5, else 0, also for NaN.

WGSL allows implementations to assume that there are no NaNs. Then `step(edge, x)` may be computed as `x >=
edge` or as the opposite of `x < edge`, which differ for NaN. SwiftShader has the former, llvmpipe the
latter.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#differences-from-ieee754
- https://www.w3.org/TR/WGSL/#step-builtin
"""

import numpy as np

from webnorm.op import case, define_op, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="float32")],
    outputs=[tensor("y", "n", dtype="float32")],
    cases=[case("divergence", {"x": [np.nan, 0.0, 0.5, 1.0, -np.nan]}, source="missing measurements")],
)


@op.reference
def reached(x):
    """Return the mask of numbers from 0.5 on."""
    return np.where(x >= 0.5, 1.0, 0.0)
