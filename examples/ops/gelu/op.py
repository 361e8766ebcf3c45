"""GELU: x times the standard normal distribution function of x, or its approximation by tanh."""

import math

import numpy as np

from webnorm.op import case, define_op, option, tensor

# NumPy has no error function. The derived tolerance knows the errors of a function with this name.
_erfc = np.frompyfunc(math.erfc, 1, 1)

_VEC4 = "an option, at sizes for vec4"

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    options=[option("approximation", "none", "tanh")],
    cases=[
        case("tanh-vec4", {}, sizes={"rows": 5, "cols": 132}, options=["approximation=tanh"], source=_VEC4),
    ],
)


def _normal_cdf(x):
    """Return the standard normal distribution function. With 1 + erf small values would lose digits."""
    return 0.5 * _erfc(x * -np.sqrt(0.5)).astype(np.float64)


@op.reference
def gelu(x, approximation):
    """Return x times the standard normal distribution function of x."""
    if approximation == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x * _normal_cdf(x)


@op.mistake("takes erf of x, not of x / sqrt(2), or leaves sqrt(2 / pi) out")
def without_factor(x, approximation):
    """Return GELU without the factor of its argument."""
    if approximation == "tanh":
        return 0.5 * x * (1 + np.tanh(x + 0.044715 * x**3))
    return x * _normal_cdf(np.sqrt(2) * x)


@op.mistake("computes the other approximation of GELU")
def other_approximation(x, approximation):
    """Return the other of the two functions."""
    return gelu(x, "none" if approximation == "tanh" else "tanh")


@op.mistake("leaves the factor 0.5 out")
def without_half(x, approximation):
    """Return twice GELU."""
    return 2 * gelu(x, approximation)


@op.mistake("computes x * sigmoid(1.702 x)")
def by_sigmoid(x):
    """Return the coarse approximation by a logistic function."""
    return x / (1 + np.exp(-1.702 * x))
