from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webnorm.op.dtypes import Array
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.ops.norms.reference import forward
from webnorm.ops.rows import normalize


def layer_norm(x: Array, weight: Array | None, bias: Array | None, eps: float) -> Array:
    """Return the reference's y."""
    given = {"x": x, "weight": weight, "bias": bias}
    problem = NormProblem(
        rows=x.shape[0],
        cols=x.shape[1],
        eps=eps,
        options=NormOptions(weight=weight is not None, bias=bias is not None),
    )
    arrays = {name: array for name, array in given.items() if array is not None}
    return forward(arrays, problem, has_mean=True)["y"].value


def exact(x: Array, weight: Array | None, bias: Array | None, eps: float) -> Array:
    """Compute the formula in fractions up to the square root."""
    answer = np.empty(x.shape)
    for i, row in enumerate(x):
        values = [Fraction(float(v)) for v in row]
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / len(values)
        sd = math.sqrt(variance + Fraction(eps))
        for j, value in enumerate(values):
            y = float(value - mean) / sd
            answer[i, j] = math.fsum(
                [
                    y * (float(weight[j]) if weight is not None else 1.0),
                    float(bias[j]) if bias is not None else 0.0,
                ]
            )
    return answer


ROWS = {
    "normal": np.random.default_rng(0).standard_normal((3, 17)),
    "shifted": np.random.default_rng(1).standard_normal((2, 64)) + 1e6,
    "constant": np.full((1, 7), 3.3333),
    # Seven and eleven equal values. Their float64 sum rounds, so a mean without a shift would differ from
    # them.
    "constant_large": np.full((1, 7), 1e15),
    "constant_odd": np.full((1, 11), 123456.789),
    # A float32 step at 1e15 is 2**26. These are four neighbouring values.
    "quantised": 1e15 + 2.0**26 * (np.arange(16.0) % 4)[None, :],
    "huge": np.random.default_rng(2).standard_normal((2, 9)) * 1e18,
    "opposite": 1e18 * np.array([[1.0, -1.0, 1.0, -1.0, 1.0]]),
    "single": np.array([[5.0]]),
}


@pytest.mark.parametrize("affine", ["none", "weight", "bias", "both"])
@pytest.mark.parametrize("name", ROWS)
def test_agrees_with_fractions(name: str, affine: str) -> None:
    x = ROWS[name].astype(np.float32)
    rng = np.random.default_rng(3)
    weight = rng.random(x.shape[1]).astype(np.float32) if affine in ("weight", "both") else None
    bias = rng.random(x.shape[1]).astype(np.float32) if affine in ("bias", "both") else None
    got = layer_norm(x, weight, bias, 1e-5)
    np.testing.assert_allclose(got, exact(x, weight, bias, 1e-5), rtol=1e-11, atol=1e-11)


def test_a_constant_row_is_exactly_the_bias() -> None:
    for value in (0.1, 123456.789, 3e7, -1e15, 1e30):
        for cols in (3, 7, 11, 199):
            x = np.full((1, cols), value, np.float32)
            assert not layer_norm(x, None, None, 1e-12).any(), (value, cols)


def test_float64_rows_around_1e15() -> None:
    x = 1e15 + np.arange(16.0)[None, :]
    np.testing.assert_allclose(layer_norm(x, None, None, 1e-5), exact(x, None, None, 1e-5), rtol=1e-11)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=12),
    st.sampled_from([1e-12, 1e-5, 1.0]),
)
def test_any_row(row: list[float], eps: float) -> None:
    x = np.array([row], np.float32)
    np.testing.assert_allclose(
        layer_norm(x, None, None, eps), exact(x, None, None, eps), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_poisoned_row_stays_alone(value: float) -> None:
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    healthy = layer_norm(x, None, None, 1e-5)
    x[1, 2] = value
    poisoned = layer_norm(x, None, None, 1e-5)
    assert np.isnan(poisoned[1]).all()
    np.testing.assert_array_equal(poisoned[[0, 2]], healthy[[0, 2]])


def test_a_constant_row_with_eps_0_has_no_answer() -> None:
    assert np.isnan(layer_norm(np.full((1, 4), 2.0, np.float32), None, None, 0.0)).all()


def test_condition() -> None:
    x = np.array([[99.0, 101.0], [-1.0, 1.0], [-101.0, -99.0]], np.float32)
    np.testing.assert_allclose(normalize(x, 0.0, has_mean=True).condition[:, 0], [100.0, 0.0, 100.0])
    np.testing.assert_allclose(normalize(x, 3.0, has_mean=True).condition[:, 0], [50.0, 0.0, 50.0])
