"""Hyperbolic tangent of each element."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def tanh_activation(x):
    """Return tanh(x)."""
    return np.tanh(x)


@op.mistake("leaves the factor 2 in the exponent out")
def half(x):
    """Return tanh(x / 2)."""
    return np.tanh(x / 2)
