"""Maximum over the middle axis."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"samples": 64, "channels": 512, "positions": 1023},
    inputs=[tensor("x", "samples channels positions")],
    outputs=[tensor("y", "samples positions")],
)


@op.reference
def max_reduction(x):
    """Return the maximum over axis 1."""
    return np.max(x, axis=1)


@op.mistake("begins with 0")
def from_zero(x):
    """Return the maximum of x and 0."""
    return np.maximum(np.max(x, axis=1), 0)
