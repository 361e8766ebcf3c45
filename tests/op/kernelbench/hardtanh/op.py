"""Hard tanh: x between two bounds."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    scalars=[scalar("lowest", -1.0), scalar("highest", 1.0)],
)


@op.reference
def hardtanh(x, lowest, highest):
    """Return min(max(x, lowest), highest)."""
    return np.clip(x, lowest, highest)


@op.mistake("has 0 as its lower bound")
def positive(x, highest):
    """Return min(max(x, 0), highest)."""
    return np.clip(x, 0, highest)
