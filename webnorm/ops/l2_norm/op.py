"""y = x / max(norm, eps) along the last axis, with the Euclidean norm or the sum of absolute values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.op import case, define_op, option, scalar, tensor
from webnorm.op.op import Float64Array
from webnorm.ops.rows import HI_LO_TOLERANCE

# Numbers below float32's smallest normal one count as zeros on many GPUs.
SMALLEST_NORMAL = 2.0**-126
# Kernels multiply a row of large numbers by 2^-80. Elements that vanish then are smaller than this in y.
VANISHING = 2.0**-100
EPS_MODES = ("clamp", "add", "none")
NORMS = ("2", "1")
_TORCH = "https://github.com/pytorch/pytorch/issues/193006, whose sum of squares overflows"
_ORT = "https://github.com/microsoft/onnxruntime/pull/32574, a norm beyond the range or below it"


def _normal(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw normal numbers."""
    return np.asarray(rng.standard_normal(shape))


def _of_scales(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw rows of very different sizes, from 1e-30 to 1e30."""
    sizes = 10.0 ** np.linspace(-30.0, 30.0, shape[0])
    return np.asarray(rng.standard_normal(shape) * sizes[:, None])


op = define_op(
    sizes={"rows": 65536, "cols": [128, 1024]},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    scalars=[scalar("eps", 1e-12)],
    options=[option("p", *NORMS), option("eps_mode", *EPS_MODES)],
    batch="rows",
    derived={"span": "cols", "has_mean": "0", "packed": "0"},
    cases=[
        case("square-beyond-float32", {"x": [[1e20, 1.0, 1.0]]}, source=_TORCH),
        *(
            case(f"{name}-{p}-{mode}", {"x": [values]}, options=[f"p={p}", f"eps_mode={mode}"], source=_ORT)
            for name, values in (
                ("sum-beyond-float32", [3e38, -3e38]),
                ("large", [1e30, -1e30]),
                ("small", [1e-30, -1e-30]),
                ("smallest", [1.2e-38, 3.6e-38]),
            )
            for p in NORMS
            for mode in ("clamp", "none")
        ),
        case(
            "beyond-float16",
            {"x": [[600.0, 800.0], [200.0, 200.0], [65504.0, 65504.0]]},
            source="https://github.com/numpy/numpy/issues/32372, squares beyond float16",
        ),
        *(
            case(
                f"scales-{p}-{mode}",
                {"x": _of_scales},
                options=[f"p={p}", f"eps_mode={mode}"],
                sizes={"rows": 61, "cols": cols},
                source=_ORT,
            )
            for p, mode, cols in (
                ("2", "none", 260),
                ("2", "none", 131),
                ("1", "none", 260),
                ("2", "clamp", 260),
                ("2", "add", 131),
            )
        ),
        *(
            case(
                f"zeros-{mode}",
                {"x": [[5.0, 12.0], [0.0, 0.0], [-3.0, 4.0], [0.0, 0.0]]},
                options=[f"eps_mode={mode}"],
                source="https://github.com/openvinotoolkit/openvino/issues/35887, NaN",
            )
            for mode in EPS_MODES
        ),
        case(
            "zeros-1",
            {"x": [[1.0, 0.0], [0.0, 0.0]]},
            options=["p=1", "eps_mode=none"],
            source="https://github.com/microsoft/onnxruntime/issues/5247, outputs that are not written",
        ),
        # The norm is below eps, so the mode decides what y is.
        case(
            "norm-near-eps",
            {"x": [[3e-13, 4e-13], [6e-7, 8e-7]]},
            options=["eps_mode=add"],
            source="https://github.com/unslothai/llama.cpp/pull/156, eps in the wrong place",
        ),
        case(
            "norm-below-eps",
            {"x": [[3e-13, 4e-13], [6e-7, 8e-7]]},
            source="https://github.com/apple/axlearn/pull/21, eps inside of the root",
        ),
        # Rows too long for registers.
        case("long-rows", {"x": _normal}, sizes={"rows": 3, "cols": 80000}, source="a loop over the row"),
        case("long-odd-rows", {"x": _normal}, sizes={"rows": 2, "cols": 70001}, source="a loop over the row"),
        # Squares below float32's normal numbers have few digits, and GPUs may count them as zeros.
        case(
            "squares-below-float32",
            {"x": np.full((2, 4096), 3.5e-21)},
            options=["eps_mode=none"],
            source="a sum that is large enough, of squares that are too small",
        ),
        case("constant-rows", {"x": np.full((3, 4095), 0.1)}, source="errors of a sum in one direction"),
    ],
)


@dataclass(frozen=True)
class RowNorms:
    """The divisors of rows (rows, 1). `is_free` is False where eps alone is the divisor."""

    divisor: Float64Array
    is_free: Any


def row_norms(x: Float64Array, eps: float, eps_mode: str, p: str) -> RowNorms:
    """Return the divisor of each row: max(norm, eps), sqrt(norm² + eps) or norm.

    The mode "add" of p = 1 is norm + eps. A row of zeros without eps is divided by infinity.
    """
    total = (np.abs(x) if p == "1" else x * x).sum(-1, keepdims=True)
    if eps_mode == "add":
        total = total + eps
    norm = total if p == "1" else np.sqrt(total)
    if eps_mode == "clamp":
        return RowNorms(np.maximum(norm, eps), norm >= eps)
    if eps_mode == "none":
        norm = np.where(norm == 0.0, np.inf, norm)
    return RowNorms(norm, np.ones_like(norm, bool))


@op.reference
def l2_norm(x: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return x / max(norm, eps), x / sqrt(norm² + eps), or x / norm with 0 for rows of zeros."""
    return x / row_norms(x, eps, eps_mode, p).divisor


@op.allowed_error
def allowed_error(x: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return the errors of y, which are relative: all terms of the sum have one sign."""
    y = np.abs(x / row_norms(x, eps, eps_mode, p).divisor)
    return np.where(np.abs(x) < SMALLEST_NORMAL, y, HI_LO_TOLERANCE * y) + VANISHING


@op.mistake("divides by the root of the mean, not of the sum")
def of_the_mean(x: Float64Array, eps: float, eps_mode: str, p: str, cols: int) -> Float64Array:
    """Return an RMSNorm."""
    return l2_norm(x, eps, eps_mode, p) * (cols if p == "1" else np.sqrt(cols))


@op.mistake("squares in float32 without scaling, which overflows or underflows")
def without_scaling(x: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return y with the norm as float32 gets it."""
    with np.errstate(all="ignore"):
        divisor = row_norms(x.astype(np.float32), eps, eps_mode, p).divisor
        return x / divisor.astype(np.float64)


@op.mistake("leaves the last column out of the norm")
def short_sum(x: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return y with a norm that lacks its last term."""
    return x / row_norms(x[:, :-1], eps, eps_mode, p).divisor


@op.mistake("adds eps to the norm, outside of the root")
def eps_outside(x: Float64Array, eps: float, p: str) -> Float64Array:
    """Return x / (norm + eps)."""
    return x / (row_norms(x, eps, "none", p).divisor + eps)


@op.mistake("adds eps inside of the root in place of a clamp")
def eps_inside(x: Float64Array, eps: float, p: str) -> Float64Array:
    """Return x / sqrt(norm² + eps)."""
    return l2_norm(x, eps, "add", p)


@op.mistake("clamps the norm in place of adding eps")
def clamped(x: Float64Array, eps: float, p: str) -> Float64Array:
    """Return x / max(norm, eps)."""
    return l2_norm(x, eps, "clamp", p)


@op.mistake("clamps the square of the norm")
def clamped_square(x: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return x / sqrt(max(norm², eps))."""
    if p == "1":
        return l2_norm(x, eps, eps_mode, p)
    return np.asarray(x / np.sqrt(np.maximum((x * x).sum(-1, keepdims=True), eps)))


@op.mistake("divides by the other norm")
def other_norm(x: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return y with the other p."""
    return l2_norm(x, eps, eps_mode, "2" if p == "1" else "1")


@op.mistake("leaves NaN in rows of zeros")
def zeros_by_zero(x: Float64Array, eps: float, eps_mode: str, p: str) -> Float64Array:
    """Return y, with 0 / 0 in rows of zeros."""
    y = l2_norm(x, eps, eps_mode, p)
    return np.where((x == 0.0).all(-1, keepdims=True), np.nan, y)
