"""GELU: x times the standard normal distribution function of x."""

import math

import numpy as np

from webnorm.op import define_op, tensor

# NumPy has no error function.
_erfc = np.frompyfunc(math.erfc, 1, 1)

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def gelu_erf(x):
    """Return x Phi(x). Phi from erfc keeps its precision where x is negative, as 1 + erf does not."""
    return 0.5 * x * _erfc(-math.sqrt(0.5) * x).astype(x.dtype)


@op.mistake("computes the approximation by tanh")
def by_tanh(x):
    """Return the approximation."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
