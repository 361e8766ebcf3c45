"""Mean over the middle axis."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"samples": 64, "channels": 512, "positions": 1023},
    inputs=[tensor("x", "samples channels positions")],
    outputs=[tensor("y", "samples positions")],
)


@op.reference
def mean_reduction(x):
    """Return the mean over axis 1."""
    return np.mean(x, axis=1)


@op.mistake("divides by one more than the number of elements")
def one_more(x):
    """Return a mean that is too small."""
    return np.sum(x, axis=1) / (x.shape[1] + 1)
