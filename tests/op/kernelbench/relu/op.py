"""ReLU: x where it is positive, else 0."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def relu(x):
    """Return max(x, 0)."""
    return np.maximum(x, 0)


@op.mistake("takes the absolute value")
def absolute(x):
    """Return |x|."""
    return np.abs(x)
