"""Product over the middle axis."""

import numpy as np

from webnorm.op import define_op, tensor, uniform

op = define_op(
    sizes={"samples": 64, "channels": 512, "positions": 1023},
    inputs=[tensor("x", "samples channels positions", draw=uniform(0.8, 1.2))],
    outputs=[tensor("y", "samples positions")],
)


@op.reference
def product_reduction(x):
    """Return the product over axis 1."""
    return np.prod(x, axis=1)


@op.mistake("leaves the last element out")
def short(x):
    """Return the product of all but the last."""
    return np.prod(x[:, :-1], axis=1)
