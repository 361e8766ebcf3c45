"""GELU: x times the standard normal distribution function of x, or its approximation by tanh."""

import math

import numpy as np

from webnorm.op import define_op, option, tensor

# NumPy has no error function. erfc(z) exp(z²), of which a product with exp(-z²) is erfc(z); 0 where that vanishes.
_scaled_erfc = np.frompyfunc(lambda z: math.erfc(z) * math.exp(z * z) if z < 25 else 0.0, 1, 1)

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    options=[option("approximation", "none", "tanh")],
)


def _normal_cdf(x):
    """Return the standard normal distribution function.

    Of negative numbers it is half of erfc, which 1 + erf has lost the digits of. The tolerance has the error of
    NumPy's exp in it, and of `_scaled_erfc` none: a kernel has to take an exp, too.
    """
    z = np.abs(x) * np.sqrt(0.5)
    tail = 0.5 * _scaled_erfc(z).astype(np.float64) * np.exp(-z * z)
    return np.where(x < 0, tail, 1 - tail)


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
