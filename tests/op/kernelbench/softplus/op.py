"""Softplus: log(1 + exp(x))."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def softplus(x):
    """Return max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@op.mistake("is linear from 1 on")
def linear_early(x):
    """Return x from 1 on."""
    return np.where(x > 1, x, np.log1p(np.exp(np.minimum(x, 1))))
