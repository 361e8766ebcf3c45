"""LayerNormalization and RMSNormalization in cases that ONNX's own test cases lack."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import webnorm
from webnorm.gpu.device import Device
from webnorm.op.dtypes import Array, finfo

RNG = np.random.default_rng(3)


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def formula(
    X: Array, Scale: Array, B: Array | float, axis: int, epsilon: float
) -> tuple[Array, Array, Array]:
    """Compute the standard's equations in float64."""
    axes = tuple(range(axis % X.ndim, X.ndim))
    x = X.astype(np.float64)
    mean = x.mean(axis=axes, keepdims=True)
    d = x - mean
    inverse = 1.0 / np.sqrt((d * d).mean(axis=axes, keepdims=True) + epsilon)
    return d * inverse * Scale + B, mean, inverse


@pytest.mark.parametrize(
    ("scale", "shift"),
    [
        ((5,), (5,)),
        ((4, 1), (1,)),
        ((1, 1, 4, 5), (4, 5)),
        ((1,), None),
        ((3, 4, 5), (5,)),
        ((4, 5), (2, 1, 1, 1)),
    ],
)
def test_scale_and_shift_broadcast(
    scale: tuple[int, ...], shift: tuple[int, ...] | None, device: Device
) -> None:
    X, Scale = normal(2, 3, 4, 5), normal(*scale)
    B = None if shift is None else normal(*shift)
    got = webnorm.layer_normalization(X, Scale, B, axis=2, epsilon=1e-3)
    for found, answer in zip(got, formula(X, Scale, 0.0 if B is None else B, 2, 1e-3), strict=True):
        assert found.dtype == np.float32 and found.shape == answer.shape
        np.testing.assert_allclose(found, answer, rtol=1e-5, atol=1e-5)
    rms = X.astype(np.float64) / np.sqrt((X.astype(np.float64) ** 2).mean(axis=(2, 3), keepdims=True) + 1e-3)
    np.testing.assert_allclose(
        webnorm.rms_normalization(X, Scale, axis=2, epsilon=1e-3), rms * Scale, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [1, 6])
def test_narrow_types(dtype: Any, rows: int, device: Device) -> None:
    """Y has the dtype of X, but for RMSNormalization the dtype of the scale. Statistics are float32."""
    X, Scale = normal(6, 40, dtype=dtype), normal(*((6, 40) if rows > 1 else (40,)), dtype=dtype)
    Y, Mean, InvStdDev = webnorm.layer_normalization(X, Scale)
    assert Y.dtype == dtype and Mean.dtype == InvStdDev.dtype == np.float32
    roundoff = float(finfo(np.dtype(dtype).name).eps)
    answer, mean, _ = formula(X, Scale.astype(np.float64), 0.0, -1, 1e-5)
    np.testing.assert_allclose(Y.astype(np.float64), answer, rtol=roundoff, atol=1e-4)
    np.testing.assert_allclose(Mean, mean, atol=1e-5)
    wide = webnorm.rms_normalization(X, Scale.astype(np.float32))
    narrow = webnorm.rms_normalization(X.astype(np.float32), Scale)
    assert wide.dtype == np.float32 and narrow.dtype == dtype
    np.testing.assert_allclose(narrow.astype(np.float64), wide, rtol=roundoff, atol=1e-4)


def test_on_the_device(device: Device) -> None:
    X, Scale = normal(2, 3, 8), normal(8)
    here = webnorm.GpuArray.from_numpy(X)
    for got, answer in zip(
        webnorm.layer_normalization(here, Scale), webnorm.layer_normalization(X, Scale), strict=True
    ):
        assert isinstance(got, webnorm.GpuArray) and got.shape == answer.shape
        np.testing.assert_array_equal(got.numpy(), answer)
    scale = webnorm.GpuArray.from_numpy(Scale.reshape(1, 8))
    np.testing.assert_array_equal(
        webnorm.rms_normalization(here, scale).numpy(), webnorm.rms_normalization(X, Scale)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"axis": 2}, "axis is 2; expected an int from -2 to 1"),
        ({"axis": -3}, "axis is -3"),
        ({"axis": 0.5}, "axis is 0.5"),
        ({"stash_type": 16}, "stash_type is 16; expected 1 (float32)"),
        ({"Scale": normal(3)}, "Scale has shape (3,); expected one that broadcasts to X's (2, 4)"),
        ({"Scale": normal(1, 2, 4)}, "Scale has shape (1, 2, 4)"),
        ({"Scale": normal(4, dtype=np.float16)}, "Scale has dtype float16; expected X's float32"),
        ({"Scale": None}, "Scale is None; expected a NumPy array"),
        ({"Scale": np.ones(4, np.float32), "B": [0.0]}, "B is a list; expected a NumPy array"),
        ({"X": normal(2, 4, dtype=np.float64)}, "X has dtype float64"),
        ({"X": np.ones((), np.float32)}, "X has no dimensions"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        webnorm.layer_normalization(**{"X": normal(2, 4), "Scale": normal(4), **arguments})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
