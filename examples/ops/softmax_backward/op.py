"""The gradient of softmax over the last axis: dx from y and dy."""

import numpy as np

from webnorm.op import case, define_op, tensor


def _normal(rng, shape):
    """Draw normal numbers."""
    return rng.standard_normal(shape)


def _probabilities(rng, shape):
    """Draw outputs of softmax: rows of positive numbers, some near 0, with a sum of 1."""
    e = np.exp(2 * rng.standard_normal(shape))
    return e / e.sum(-1, keepdims=True)


op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("y", "rows cols", draw=_probabilities), tensor("dy", "rows cols")],
    outputs=[tensor("dx", "rows cols")],
    cases=[
        # One column has probability 1, so dx is 0 there, as a difference of equal numbers.
        case(
            "one-hot",
            {"y": np.eye(5, 67), "dy": np.linspace(-3, 3, 5 * 67).reshape(5, 67)},
            source="a saturated softmax",
        ),
        # If all dy are equal, dx is 0 except for rounding.
        case("equal-dy", {"dy": np.full((4, 130), 100.0)}, source="rows of y have a sum of 1"),
        # Rows too long for registers.
        case("long-rows", {"dy": _normal}, sizes={"rows": 3, "cols": 20000}, source="a loop over the row"),
        case(
            "long-odd-rows", {"dy": _normal}, sizes={"rows": 2, "cols": 17001}, source="a loop over the row"
        ),
    ],
)


@op.reference
def softmax_backward(y, dy):
    """Return y * (dy - sum(y * dy))."""
    return y * (dy - (y * dy).sum(-1, keepdims=True))


@op.mistake("takes the sum of dy, not of y * dy")
def unweighted(y, dy):
    """Return dx with dy unweighted in the sum."""
    return y * (dy - dy.sum(-1, keepdims=True))


@op.mistake("leaves the sum out: it is the gradient of y alone")
def diagonal(y, dy):
    """Return the diagonal of the Jacobian times dy."""
    return y * (1 - y) * dy


@op.mistake("swaps y and dy")
def swapped(y, dy):
    """Return the gradient with y and dy exchanged."""
    return dy * (y - (y * dy).sum(-1, keepdims=True))


@op.mistake("does not multiply by y")
def unscaled(y, dy):
    """Return the gradient of the logarithm of y, nearly."""
    return dy - (y * dy).sum(-1, keepdims=True)
