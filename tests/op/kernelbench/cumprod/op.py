"""Cumulative product along the last axis."""

import numpy as np

from webnorm.op import define_op, tensor, uniform

op = define_op(
    sizes={"rows": 1024, "cols": 8192},
    inputs=[tensor("x", "rows cols", draw=uniform(0.8, 1.2))],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def cumprod(x):
    """Return the products of the elements up to each."""
    return np.cumprod(x, axis=-1)


@op.mistake("leaves the element itself out")
def exclusive(x):
    """Return the exclusive product."""
    return np.cumprod(x, axis=-1) / x
