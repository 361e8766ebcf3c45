"""Softsign: x / (1 + |x|)."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def softsign(x):
    """Return x / (1 + |x|)."""
    return x / (1 + np.abs(x))


@op.mistake("does not take the absolute value below the line")
def signed(x):
    """Return x / (1 + x)."""
    return x / (1 + x)
