"""SELU: an exponential linear unit whose outputs keep mean 0 and variance 1."""

import numpy as np

from webnorm.op import define_op, tensor

ALPHA = 1.6732632423543772
SCALE = 1.0507009873554805

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def selu(x):
    """Return SCALE times x, or times ALPHA (exp(x) - 1) below 0."""
    return SCALE * (np.maximum(x, 0) + ALPHA * np.expm1(np.minimum(x, 0)))


@op.mistake("leaves the scale out above 0")
def unscaled(x):
    """Return SELU with a slope of 1 above 0."""
    return np.maximum(x, 0) + SCALE * ALPHA * np.expm1(np.minimum(x, 0))
