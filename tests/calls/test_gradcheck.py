"""Central differences confirm the float64 gradients, which are the reference for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webnorm.op.dtypes import Array
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem

# Rows and columns. The first and last pair are (2, 3, 4) over one and over two trailing dimensions.
SHAPES = [(6, 4), (1, 7), (5, 1), (2, 12)]
STEP = 1e-6
OPTIONS = {
    "plain": NormOptions(weight=False, bias=False),
    "affine": NormOptions(),
    "zero-centered": NormOptions(zero_centered_weight=True),
    "offset": NormOptions(weight_offset=-0.375),
    "residual": NormOptions(dh=True, residual_bias=True, zero_centered_weight=True),
}
EPS = 1e-3


def loss(op: str, arrays: dict[str, Array], problem: NormProblem) -> float:
    """Return sum(dy * y) + sum(dh * h). Its derivatives are the gradients for dy and dh."""
    vectors: dict[str, Array] = {name: arrays[name] for name in ("weight", "bias") if name in arrays}
    h = arrays["x"] + arrays.get("residual_bias", 0.0)
    forward = NormProblem(
        rows=problem.rows,
        cols=problem.cols,
        eps=EPS,
        distribution="given",
        options=NormOptions(
            weight="weight" in vectors,
            bias="bias" in vectors,
            zero_centered_weight=problem.options.zero_centered_weight,
            weight_offset=problem.options.weight_offset,
        ),
    )
    y = OPS[op].reference({"x": h, **vectors}, forward)["y"].value
    return float((arrays["dy"] * y).sum() + (arrays.get("dh", np.zeros(1)) * h).sum())


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_central_differences(op: str, options: str, shape: tuple[int, int]) -> None:
    rows, cols = shape
    rng = np.random.default_rng(rows * cols)
    chosen = OPTIONS[options]
    problem = NormProblem(rows=rows, cols=cols, eps=EPS, distribution="given", options=chosen)
    arrays: dict[str, Any] = {"x": rng.standard_normal(shape) + 0.5, "dy": rng.standard_normal(shape)}
    for name, present in (
        ("weight", chosen.weight),
        ("bias", chosen.bias),
        ("residual_bias", chosen.residual_bias),
    ):
        if present:
            arrays[name] = rng.standard_normal(cols)
    if chosen.dh:
        arrays["dh"] = rng.standard_normal(shape)
    seen = {**arrays, "x": arrays["x"] + arrays.get("residual_bias", 0.0)}
    got = OPS[f"{op}_backward"].reference(seen, problem)
    wanted = {"dx": "x", "dweight": "weight", "dbias": "bias", "dresidual_bias": "residual_bias"}
    assert set(got) == {name for name, source in wanted.items() if source in arrays}
    for name in got:
        source = arrays[wanted[name]]
        for index in np.ndindex(source.shape):
            kept = source[index]
            source[index] = kept + STEP
            above = loss(op, arrays, problem)
            source[index] = kept - STEP
            below = loss(op, arrays, problem)
            source[index] = kept
            assert got[name].value[index] == pytest.approx((above - below) / (2 * STEP), rel=1e-5, abs=1e-7)
