"""The nearest float16 of each number, as a float32; ties go to the even one.

Why engines differ: WGSL lets a conversion to float16 round up or down. `quantizeToF16` rounds to nearest on Mesa's
llvmpipe, and SwiftShader cuts off the lower bits.
WGSL: "15.7.6. Floating Point Conversion", "17.5.56. quantizeToF16".
"""

import numpy as np

from webnorm.op import case, define_op, tensor, uniform

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="float32", draw=uniform(0.5, 1000.0))],
    outputs=[tensor("y", "n", dtype="float32")],
    cases=[case("ties-and-neighbours", {"x": 1.0 + np.arange(1, 64) * 2.0**-12})],
    relative_tolerance=1e-7,
)


@op.reference
def nearest(x):
    """Return x, rounded to float16."""
    return x.astype(np.float16).astype(np.float64)
