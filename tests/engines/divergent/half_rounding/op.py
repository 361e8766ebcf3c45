"""The nearest float16 of each number, as a float32; ties go to the even one.

WGSL does not specify whether a conversion to float16 takes the value above or the value below. On llvmpipe
`quantizeToF16` rounds to the nearest, and on SwiftShader towards zero.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#floating-point-conversion
- https://www.w3.org/TR/WGSL/#quantizeToF16-builtin
"""

import numpy as np

from webnorm.op import case, define_op, tensor, uniform

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="float32", draw=uniform(0.5, 1000.0))],
    outputs=[tensor("y", "n", dtype="float32")],
    cases=[
        case("divergence", {"x": 1.0 + np.arange(64) * 2.0**-12}, source="ties, and numbers between them")
    ],
    relative_tolerance=1e-7,
)


@op.reference
def nearest(x):
    """Return x, rounded to float16."""
    return x.astype(np.float16).astype(np.float64)
