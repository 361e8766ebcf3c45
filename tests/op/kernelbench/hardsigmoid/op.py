"""Hard sigmoid: (x + 3) / 6, between 0 and 1."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def hardsigmoid(x):
    """Return min(max(x + 3, 0), 6) / 6."""
    return np.clip(x + 3, 0, 6) / 6


@op.mistake("has the slope 0.2 of other libraries")
def steeper(x):
    """Return min(max(0.2 x + 0.5, 0), 1)."""
    return np.clip(0.2 * x + 0.5, 0, 1)
