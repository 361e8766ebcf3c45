"""ELU: x where it is positive, else alpha (exp(x) - 1)."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    scalars=[scalar("alpha", 1.0)],
)


@op.reference
def elu(x, alpha):
    """Return x, or alpha (exp(x) - 1) below 0."""
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))


@op.mistake("leaves -1 out below 0")
def unshifted(x, alpha):
    """Return alpha exp(x) below 0."""
    return np.where(x > 0, x, alpha * np.exp(np.minimum(x, 0)))
