"""dx of y = softmax(scale * x + mask), or of its logarithm, from y and dy."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnorm.op import case, define_op, option, scalar, tensor
from webnorm.op.op import Float64Array
from webnorm.ops.softmax.op import CORNERS, is_seen


def _normal(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw normal numbers."""
    return np.asarray(rng.standard_normal(shape))


def _probabilities(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw outputs of softmax: rows of positive numbers, some near 0, with a sum of 1."""
    e = np.exp(2.0 * rng.standard_normal(shape))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _logarithms(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw logarithms of outputs of softmax."""
    return np.log(_probabilities(rng, shape))


op = define_op(
    sizes={"batch": 4096, "queries": 1, "cols": 4096},
    inputs=[tensor("y", "batch queries cols", draw=_probabilities), tensor("dy", "batch queries cols")],
    outputs=[tensor("dx", "batch queries cols")],
    scalars=[scalar("scale", 1.0)],
    options=[option("causal", *CORNERS), option("log")],
    batch="batch",
    derived={"span": "cols", "has_mean": "0", "packed": "0"},
    cases=[
        # One column has probability 1, so dx is 0 there, as a difference of equal numbers.
        case(
            "one-hot",
            {"y": np.eye(5, 67)[:, None], "dy": np.linspace(-3, 3, 5 * 67).reshape(5, 1, 67)},
            source="a saturated softmax",
        ),
        # If all dy are equal, dx is 0 except for rounding.
        case("equal-dy", {"dy": np.full((4, 1, 130), 100.0)}, source="rows of y have a sum of 1"),
        case("logarithms", {"y": _logarithms}, options=["log"], source="log_softmax"),
        case(
            "masked-logarithms",
            {"y": np.where(np.arange(68) % 3 == 1, -np.inf, -np.log(45.0))[None, None].repeat(3, 0)},
            options=["log"],
            source="log_softmax of rows with a mask of -inf",
        ),
        *(
            case(
                f"causal-{corner}-{queries}x{cols}{''.join(more)}",
                {"y": _logarithms if more else _probabilities},
                options=[f"causal={corner}", *more],
                sizes={"batch": 2, "queries": queries, "cols": cols},
                source="https://github.com/Dao-AILab/flash-attention/issues/517, another corner",
            )
            for corner in CORNERS[1:]
            for queries, cols in ((33, 64), (33, 131), (9, 5))
            for more in ([], ["log"])
        ),
        # Rows too long for registers.
        case(
            "long-rows",
            {"dy": _normal},
            sizes={"batch": 3, "queries": 1, "cols": 20000},
            source="a loop over the row",
        ),
        case(
            "long-odd-rows",
            {"dy": _normal},
            sizes={"batch": 2, "queries": 1, "cols": 17001},
            source="a loop over the row",
        ),
    ],
)


@op.reference
def softmax_backward(
    y: Float64Array, dy: Float64Array, scale: float, causal: str | None, log: bool
) -> Float64Array:
    """Return scale * y * (dy - sum(y * dy)), or for logarithms scale * (dy - exp(y) * sum(dy)).

    Columns that the causal mask hides have the gradient 0, and their y and dy have no effect.
    """
    seen = is_seen(y.shape[1], y.shape[2], causal)
    if log:
        total = np.where(seen, dy, 0.0).sum(-1, keepdims=True)
        return np.where(seen, scale * (dy - np.exp(y) * total), 0.0)
    total = np.where(seen, y * dy, 0.0).sum(-1, keepdims=True)
    return np.where(seen, scale * (y * (dy - total)), 0.0)


@op.mistake("takes the sum of dy, not of y * dy")
def unweighted(y: Float64Array, dy: Float64Array, scale: float) -> Float64Array:
    """Return dx with dy unweighted in the sum."""
    return np.asarray(scale * y * (dy - dy.sum(-1, keepdims=True)))


@op.mistake("leaves the sum out: it is the gradient of y alone")
def diagonal(y: Float64Array, dy: Float64Array, scale: float) -> Float64Array:
    """Return the diagonal of the Jacobian times dy."""
    return scale * y * (1.0 - y) * dy


@op.mistake("swaps y and dy")
def swapped(y: Float64Array, dy: Float64Array, scale: float) -> Float64Array:
    """Return the gradient with y and dy exchanged."""
    return np.asarray(scale * dy * (y - (y * dy).sum(-1, keepdims=True)))


@op.mistake("does not multiply by y")
def unscaled(y: Float64Array, dy: Float64Array, scale: float) -> Float64Array:
    """Return the gradient of the logarithm of y, nearly."""
    return np.asarray(scale * (dy - (y * dy).sum(-1, keepdims=True)))


@op.mistake("ignores the scale")
def without_scale(y: Float64Array, dy: Float64Array, causal: str | None, log: bool) -> Float64Array:
    """Return the gradient of scale * x + mask."""
    return softmax_backward(y, dy, 1.0, causal, log)


@op.mistake("ignores the causal mask")
def without_causal(y: Float64Array, dy: Float64Array, scale: float, log: bool) -> Float64Array:
    """Return the gradient of a softmax of all columns."""
    return softmax_backward(y, dy, scale, None, log)


@op.mistake("takes y for probabilities, though they are logarithms")
def of_probabilities(y: Float64Array, dy: Float64Array, scale: float, causal: str | None) -> Float64Array:
    """Return the gradient without the option log."""
    return softmax_backward(y, dy, scale, causal, False)
