"""Swish, or SiLU: x times its sigmoid."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def swish(x):
    """Return x / (1 + exp(-x))."""
    return x / (1 + np.exp(-x))


@op.mistake("computes x * hardsigmoid(x)")
def hard(x):
    """Return the hard swish."""
    return x * np.clip(x + 3, 0, 6) / 6
