"""Rows divided by their Euclidean norm."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def l2_norm(x):
    """Return x / sqrt(sum of x^2)."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


@op.mistake("leaves the last column out of the norm")
def short(x):
    """Return x over the norm of all but the last element."""
    return x / np.sqrt((x[:, :-1] * x[:, :-1]).sum(-1, keepdims=True))
