"""Minimum over the middle axis."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"samples": 64, "channels": 512, "positions": 1023},
    inputs=[tensor("x", "samples channels positions")],
    outputs=[tensor("y", "samples positions")],
)


@op.reference
def min_reduction(x):
    """Return the minimum over axis 1."""
    return np.min(x, axis=1)


@op.mistake("begins with 0")
def from_zero(x):
    """Return the minimum of x and 0."""
    return np.minimum(np.min(x, axis=1), 0)
