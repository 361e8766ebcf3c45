"""GELU in its approximation by tanh."""

import math

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def new_gelu(x):
    """Return 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@op.mistake("computes x * sigmoid(1.702 x)")
def by_sigmoid(x):
    """Return the coarse approximation by a logistic function."""
    return x / (1 + np.exp(-1.702 * x))
