"""The angle of the complex number re + im*i, in radians.

Why engines differ: WGSL lets an implementation ignore the sign of a zero. The angle of -1 - 0i is -pi with the sign and
pi without it. SwiftShader gives 0.
WGSL: "15.7.2. Differences from IEEE-754", "17.5.8. atan2".
"""

import numpy as np

from webnorm.op import case, define_op, tensor, uniform

op = define_op(
    sizes={"n": 4096},
    inputs=[
        tensor("re", "n", dtype="float32", draw=uniform(-2.0, -0.5)),
        tensor("im", "n", dtype="float32", draw=uniform(0.5, 2.0)),
    ],
    outputs=[tensor("y", "n", dtype="float32")],
    cases=[
        case("conjugate-of-a-negative-number", {"re": [-1.0, -1.0, -2.0], "im": [0.0, -0.0, -0.0]}),
        case("both-sides", {"re": [-1.0, -1.0, 1.0, 1.0], "im": [0.5, -0.5, 0.5, -0.5]}),
    ],
    # WGSL allows 4096 units in the last place.
    relative_tolerance=4096 * 2.0**-23,
)


@op.reference
def angle(re, im):
    """Return the angle."""
    return np.arctan2(im, re)
