"""Index of the maximum over the middle axis; the first index if several elements are equal."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"samples": 64, "channels": 512, "positions": 1023},
    inputs=[tensor("x", "samples channels positions")],
    outputs=[tensor("y", "samples positions", dtype="int32")],
)


@op.reference
def argmax_reduction(x):
    """Return the index of the maximum over axis 1."""
    return np.argmax(x, axis=1)


@op.mistake("gives the last of equal ones")
def last(x):
    """Return the last index of the maximum."""
    return x.shape[1] - 1 - np.argmax(x[:, ::-1], axis=1)
