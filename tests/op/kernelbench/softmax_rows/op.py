"""Softmax over the last axis."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def softmax_rows(x):
    """Return exp(x) over its sum. It subtracts the maximum first, so that exp does not overflow."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@op.mistake("leaves the last column out of the sum")
def short(x):
    """Return exponentials over the sum of all but the last."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / np.maximum(e[:, :-1].sum(-1, keepdims=True), 1e-30)


@op.mistake("does not subtract the maximum")
def unshifted(x):
    """Return a softmax that overflows in float32."""
    e = np.exp(x.astype(np.float32))
    return e / e.sum(-1, keepdims=True)
