from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import webnorm
from webnorm.device import Device
from webnorm.reference import layer_norm as reference

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "normalized"),
    [
        ((768,), 768),
        ((4, 96), (96,)),
        ((2, 3, 4), 4),
        ((2, 3, 4), (3, 4)),
        ((2, 3, 4), (2, 3, 4)),
        ((5, 1, 7), [7]),
    ],
)
def test_shapes(shape: tuple[int, ...], normalized: Any, device: Device) -> None:
    x = normal(*shape)
    trailing = (normalized,) if isinstance(normalized, int) else tuple(normalized)
    cols = int(np.prod(trailing))
    weight, bias = normal(*trailing), normal(*trailing)
    y = webnorm.layer_norm(x, normalized, weight, bias, 1e-3)
    expected = reference(x.reshape(-1, cols), weight.reshape(-1), bias.reshape(-1), 1e-3).reshape(shape)
    assert y.shape == shape and y.dtype == np.float32
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        webnorm.layer_norm(x, normalized),
        reference(x.reshape(-1, cols), None, None, 1e-5).reshape(shape),
        atol=1e-5,
    )


def test_arrays_that_are_not_contiguous(device: Device) -> None:
    x = normal(6, 64)
    strided = np.asfortranarray(x)
    np.testing.assert_array_equal(webnorm.layer_norm(strided, 64), webnorm.layer_norm(x, 64))
    np.testing.assert_array_equal(webnorm.layer_norm(x[::2], 64), webnorm.layer_norm(x[::2].copy(), 64))


def test_a_size_of_zero_needs_no_device() -> None:
    assert webnorm.layer_norm(np.empty((0, 8), np.float32), 8).shape == (0, 8)
    assert webnorm.layer_norm(np.empty((3, 0, 8), np.float32), 8).shape == (3, 0, 8)


def test_long_rows_take_another_kernel(device: Device) -> None:
    x = normal(2, 70000)
    np.testing.assert_allclose(webnorm.layer_norm(x, 70000), reference(x, None, None, 1e-5), atol=2e-5)


def test_a_kernel_by_name(device: Device) -> None:
    x = normal(3, 100)
    np.testing.assert_allclose(
        webnorm.layer_norm(x, 100, kernel="two_pass", device=device),
        reference(x, None, None, 1e-5),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": normal(2, 3).astype(np.float64)}, "x has dtype float64; expected float32"),
        ({"x": [[1.0, 2.0, 3.0]]}, "x is a list; expected a NumPy array"),
        ({"x": normal(2, 4)}, "x has shape (2, 4); expected it to end in normalized_shape (3,)"),
        ({"normalized_shape": (2, 2, 3)}, "expected it to end in"),
        ({"normalized_shape": ()}, "normalized_shape is ()"),
        ({"normalized_shape": "three"}, "normalized_shape is 'three'"),
        ({"x": normal(2, 0), "normalized_shape": 0}, "expected one element or more"),
        ({"weight": normal(4)}, "weight has shape (4,); expected normalized_shape (3,)"),
        ({"bias": normal(3).astype(np.float16)}, "bias has dtype float16; expected float32"),
        ({"eps": -1.0}, "eps is -1.0; expected a finite number of 0 or more"),
        ({"eps": float("nan")}, "eps is nan"),
        ({"eps": "small"}, "eps is 'small'"),
        ({"kernel": "regsiters"}, "unknown kernel 'regsiters'; did you mean 'registers'"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str, device: Device) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        webnorm.layer_norm(**{"x": normal(2, 3), "normalized_shape": 3, **arguments})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_kernel_that_cannot(device: Device) -> None:
    with pytest.raises(webnorm.WebnormError, match="kernel registers cannot run 1x200000 float32"):
        webnorm.layer_norm(normal(1, 200000), 200000, kernel="registers")


def test_public_names() -> None:
    for name in webnorm.__all__:
        assert getattr(webnorm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'layernorm'"):
        webnorm.layernorm  # noqa: B018
