"""Sum over the middle axis, which stays as an axis of one."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"samples": 64, "channels": 512, "positions": 1023},
    inputs=[tensor("x", "samples channels positions")],
    outputs=[tensor("y", "samples 1 positions")],
)


@op.reference
def sum_reduction(x):
    """Return the sum over axis 1."""
    return np.sum(x, axis=1, keepdims=True)


@op.mistake("leaves the last element out")
def short(x):
    """Return the sum of all but the last."""
    return np.sum(x[:, :-1], axis=1, keepdims=True)
