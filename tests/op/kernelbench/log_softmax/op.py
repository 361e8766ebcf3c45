"""Logarithm of the softmax over the last axis."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def log_softmax(x):
    """Return x minus the logarithm of the sum of exp(x)."""
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@op.mistake("leaves the last column out of the sum")
def short(x):
    """Return the logarithm with one term too few."""
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted[:, :-1]).sum(-1, keepdims=True))
