"""All elements divided by the Frobenius norm of the whole tensor."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def frobenius_norm(x):
    """Return x / sqrt(sum of x^2)."""
    return x / np.sqrt((x * x).sum())


@op.mistake("normalizes each row")
def by_row(x):
    """Return rows of norm 1."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True))
