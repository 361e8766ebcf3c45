"""Sigmoid: 1 / (1 + exp(-x))."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def sigmoid(x):
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


@op.mistake("computes the piecewise linear sigmoid")
def hard(x):
    """Return the hard sigmoid."""
    return np.clip(x + 3, 0, 6) / 6
