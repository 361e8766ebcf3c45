"""The angle of the complex number re + im*i, in radians.

The angle of -1 + 0i is pi, and the angle of -1 - 0i is -pi. WGSL allows implementations to ignore the sign
of a zero, and gives no accuracy for `atan2` if y is 0. On SwiftShader the angle of -1 - 0i is 0.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#differences-from-ieee754
- https://www.w3.org/TR/WGSL/#atan2-builtin
- https://www.w3.org/TR/WGSL/#floating-point-accuracy
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
        case(
            "divergence",
            {"re": [-1.0, -1.0, 1.0], "im": [0.0, -0.0, -0.0]},
            source="conjugates of real numbers",
        ),
        case("quadrants", {"re": [1.0, 1.0, -1.0, -1.0], "im": [0.5, -0.5, 0.5, -0.5]}, source="all four"),
    ],
    # WGSL allows 4096 units in the last place.
    relative_tolerance=4096 * 2.0**-23,
)


@op.reference
def angle(re, im):
    """Return the angle."""
    return np.arctan2(im, re)
