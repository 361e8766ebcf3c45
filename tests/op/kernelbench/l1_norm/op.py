"""Rows divided by the mean of their absolute values."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def l1_norm(x):
    """Return x / mean of |x|."""
    return x / np.abs(x).mean(-1, keepdims=True)


@op.mistake("divides by the sum in place of the mean")
def by_sum(x):
    """Return x / sum of |x|."""
    return x / np.abs(x).sum(-1, keepdims=True)
