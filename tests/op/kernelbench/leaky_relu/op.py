"""Leaky ReLU: x where it is positive, else x times a small slope."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    scalars=[scalar("negative_slope", 0.01)],
)


@op.reference
def leaky_relu(x, negative_slope):
    """Return x, or negative_slope x below 0."""
    return np.where(x >= 0, x, negative_slope * x)


@op.mistake("has a slope of 0 below 0")
def relu(x):
    """Return ReLU."""
    return np.maximum(x, 0)
