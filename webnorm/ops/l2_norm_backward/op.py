"""dx of y = x / max(norm, eps), from x and dy."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnorm.op import case, define_op, option, scalar, tensor
from webnorm.op.op import Float64Array
from webnorm.ops.l2_norm.op import EPS_MODES, NORMS, VANISHING, row_norms
from webnorm.ops.rows import GRADIENT_TOLERANCE

_TORCH = "https://github.com/pytorch/pytorch/issues/193006, gradients of 0"
_ZEROS = "https://github.com/pytorch/pytorch/pull/9448, NaN in the gradient of zeros"


def _normal(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw normal numbers."""
    return np.asarray(rng.standard_normal(shape))


def _of_scales(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw rows of very different sizes, from 1e-20 to 1e30."""
    sizes = 10.0 ** np.linspace(-20.0, 30.0, shape[0])
    return np.asarray(rng.standard_normal(shape) * sizes[:, None])


op = define_op(
    sizes={"rows": 65536, "cols": [128, 1024]},
    inputs=[tensor("x", "rows cols"), tensor("dy", "rows cols")],
    outputs=[tensor("dx", "rows cols")],
    scalars=[scalar("eps", 1e-12)],
    options=[option("p", *NORMS), option("eps_mode", *EPS_MODES)],
    batch="rows",
    derived={"span": "cols", "has_mean": "0", "packed": "0"},
    cases=[
        case("square-beyond-float32", {"x": [[1e20, 1.0, 1.0]], "dy": [[1e20, -3e20, 2e20]]}, source=_TORCH),
        *(
            case(
                f"scales-{p}-{mode}",
                {"x": _of_scales, "dy": _normal},
                options=[f"p={p}", f"eps_mode={mode}"],
                sizes={"rows": 51, "cols": cols},
                source=_TORCH,
            )
            for p, mode, cols in (
                ("2", "none", 260),
                ("2", "none", 131),
                ("1", "none", 260),
                ("2", "clamp", 260),
            )
        ),
        *(
            case(
                f"zeros-{p}-{mode}",
                {"x": [[5.0, 12.0, 0.0], [0.0, 0.0, 0.0]], "dy": [[1.0, 2.0, -3.0], [1.0, 2.0, -3.0]]},
                options=[f"p={p}", f"eps_mode={mode}"],
                source=_ZEROS,
            )
            for p in NORMS
            for mode in EPS_MODES
        ),
        # The norm is below eps, so y = x / eps has no other gradient than 1 / eps.
        case("norm-below-eps", {"x": [[3e-13, 4e-13], [3e-7, 4e-7]]}, source="the two branches of the clamp"),
        # dy along x has the gradient 0, as a difference of equal numbers.
        case(
            "along-x",
            {"x": np.linspace(-2.0, 3.0, 130)[None], "dy": np.linspace(-2.0, 3.0, 130)[None]},
            source="the gradient is perpendicular to x",
        ),
        # Rows too long for registers.
        case("long-rows", {"x": _normal}, sizes={"rows": 3, "cols": 40000}, source="a loop over the row"),
        case("long-odd-rows", {"x": _normal}, sizes={"rows": 2, "cols": 35001}, source="a loop over the row"),
    ],
)


def _direction(x: Float64Array, divisor: Float64Array, p: str) -> Float64Array:
    """Return the gradient of the norm."""
    return np.sign(x) if p == "1" else x / divisor


def _across(
    x: Float64Array, dy: Float64Array, divisor: Float64Array, p: str, along: Float64Array
) -> Float64Array:
    """Return dy without its part `along` the gradient of the norm, over the divisor."""
    return np.asarray((dy - _direction(x, divisor, p) * along) / divisor)


@op.reference
def l2_norm_backward(x: Float64Array, dy: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return (dy - direction * sum(dy * y)) / divisor, and dy / eps for rows with a norm below eps.

    The direction is the gradient of the norm: y for p = 2, and the sign of x for p = 1.
    """
    norms = row_norms(x, eps, eps_mode, p)
    along = np.where(norms.is_free, (dy * x / norms.divisor).sum(-1, keepdims=True), 0.0)
    return _across(x, dy, norms.divisor, p, along)


@op.allowed_error
def allowed_error(x: Float64Array, dy: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return the errors of dx: each term's size, times the error of a gradient's element."""
    norms = row_norms(x, eps, eps_mode, p)
    along = np.where(norms.is_free, np.abs(dy * x / norms.divisor).sum(-1, keepdims=True), 0.0)
    size = np.abs(dy) + np.abs(_direction(x, norms.divisor, p)) * along
    return np.asarray(GRADIENT_TOLERANCE * size / norms.divisor + VANISHING)


@op.mistake("leaves the sum out: it divides dy by the norm alone")
def diagonal(x: Float64Array, dy: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return dy / divisor."""
    return dy / row_norms(x, eps, eps_mode, p).divisor


@op.mistake("takes the mean in place of the sum")
def of_the_mean(
    x: Float64Array, dy: Float64Array, eps: float, eps_mode: str, p: str, cols: int
) -> Float64Array:
    """Return the gradient of an RMSNorm, nearly."""
    norms = row_norms(x, eps, eps_mode, p)
    along = (dy * x / norms.divisor).sum(-1, keepdims=True) / cols
    return _across(x, dy, norms.divisor, p, along)


@op.mistake("swaps x and dy")
def swapped(x: Float64Array, dy: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return the gradient with x and dy exchanged."""
    return l2_norm_backward(dy, x, eps, eps_mode, p)


@op.mistake("does not divide by the norm")
def unscaled(x: Float64Array, dy: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return dx times the norm."""
    return l2_norm_backward(x, dy, eps, eps_mode, p) * row_norms(x, eps, eps_mode, p).divisor


@op.mistake("does not treat a norm below eps as constant")
def free_below_eps(x: Float64Array, dy: Float64Array, eps: float, p: str) -> Float64Array:
    """Return the gradient of the mode without eps, divided as with the clamp."""
    divisor = row_norms(x, eps, "clamp", p).divisor
    along = (dy * x / divisor).sum(-1, keepdims=True)
    return _across(x, dy, divisor, p, along)


@op.mistake("uses the gradient of the other norm")
def other_norm(x: Float64Array, dy: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return dx with the other p."""
    return l2_norm_backward(x, dy, eps, eps_mode, "2" if p == "1" else "1")


@op.mistake("squares in float32 without scaling, which overflows or underflows")
def without_scaling(x: Float64Array, dy: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return dx with the norm as float32 gets it."""
    with np.errstate(all="ignore"):
        divisor = row_norms(x.astype(np.float32), eps, eps_mode, p).divisor.astype(np.float64)
        along = (dy * x / divisor).sum(-1, keepdims=True)
        return _across(x, dy, divisor, p, along)
