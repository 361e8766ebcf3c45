"""LayerNorm and RMSNorm as objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import webnorm
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, Array

pytestmark = pytest.mark.opengl

RNG = np.random.default_rng(5)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(DTYPES[dtype])


def test_parameters_at_first() -> None:
    norm = webnorm.LayerNorm((3, 4))
    assert norm.normalized_shape == (3, 4) and norm.eps == 1e-5
    assert norm.weight is not None and norm.bias is not None
    np.testing.assert_array_equal(norm.weight, np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(norm.bias, np.zeros((3, 4), np.float32))
    assert norm.weight_grad is None and norm.bias_grad is None
    assert list(norm.state_dict()) == ["weight", "bias"]
    centred = webnorm.RMSNorm(8, zero_centered_weight=True, dtype="bfloat16")
    assert centred.weight is not None and not centred.weight.any()
    assert centred.weight.dtype == DTYPES["bfloat16"] and centred.bias is None and centred.eps is None
    assert list(centred.state_dict()) == ["weight"]
    offset = webnorm.LayerNorm(8, weight_offset=0.25)
    np.testing.assert_array_equal(offset.weight, np.full(8, 0.75, np.float32))
    assert list(webnorm.LayerNorm(8, bias=False).state_dict()) == ["weight"]
    assert not webnorm.LayerNorm(8, elementwise_affine=False).state_dict()
    assert repr(norm) == "LayerNorm((3, 4), eps=1e-05, dtype=float32)"


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", ["numpy", "device"])
def test_forward_and_backward(kind: str, affine: bool, device: Device) -> None:
    x, dy = normal(6, 40), normal(6, 40)
    given: list[Any] = [x, dy]
    if kind == "device":
        given = [webnorm.GpuArray.from_numpy(array, device) for array in given]
    offset = -0.375 if affine else 0.0
    layer = webnorm.LayerNorm(40, eps=1e-3, elementwise_affine=affine, weight_offset=offset, device=device)
    rms = webnorm.RMSNorm(40, eps=1e-3, elementwise_affine=affine, zero_centered_weight=True, device=device)
    if affine:
        layer.load_state_dict({"weight": normal(40), "bias": normal(40)})
        rms.load_state_dict({"weight": normal(40)})
    passes: list[tuple[Any, ...]] = [
        (
            layer,
            webnorm.layer_norm,
            webnorm.layer_norm_backward,
            {"weight_offset": offset},
            {"bias_grad": affine},
        ),
        (rms, webnorm.rms_norm, webnorm.rms_norm_backward, {"zero_centered_weight": affine}, {}),
    ]
    for module, forward, backward, centred, wanted in passes:
        y = module(given[0])
        dx = module.backward(given[1])
        assert isinstance(y, np.ndarray if kind == "numpy" else webnorm.GpuArray)
        assert isinstance(dx, np.ndarray if kind == "numpy" else webnorm.GpuArray)
        answer = forward(x, 40, module.weight, bias=module.bias, eps=1e-3, **centred)
        # The module's kernel also saves statistics, so a compiler may contract its shader differently.
        np.testing.assert_allclose(np.asarray(y), answer, rtol=2e-6, atol=2e-6)
        gradients = backward(dy, x, 40, module.weight, eps=1e-3, **centred, **wanted)
        np.testing.assert_allclose(np.asarray(dx), gradients[0], rtol=1e-5, atol=1e-5)
        if not affine:
            assert module.weight_grad is None and module.bias_grad is None
            continue
        assert isinstance(module.weight_grad, np.ndarray)
        np.testing.assert_allclose(module.weight_grad, gradients[1], rtol=1e-5, atol=1e-5)
        if module.bias is not None:
            assert isinstance(module.bias_grad, np.ndarray)
            np.testing.assert_allclose(module.bias_grad, gradients[2], rtol=1e-5, atol=1e-5)


def test_parameters_of_float32_for_a_narrow_x(device: Device) -> None:
    norm = webnorm.LayerNorm(40)
    y = norm(normal(6, 40, dtype="bfloat16"))
    dx = norm.backward(normal(6, 40, dtype="bfloat16"))
    assert y.dtype == dx.dtype == DTYPES["bfloat16"]
    assert norm.weight_grad is not None and norm.weight_grad.dtype == np.float32


def test_backward_sees_the_x_that_forward_saw(device: Device) -> None:
    x, dy = normal(6, 40), normal(6, 40)
    norm = webnorm.RMSNorm(40)
    norm(x)
    answer = webnorm.rms_norm_backward(dy, x, 40, norm.weight)[0]
    x[:] = 0.0
    np.testing.assert_allclose(norm.backward(dy), answer, rtol=1e-5, atol=1e-5)


def test_backward_needs_a_forward_pass(device: Device) -> None:
    x = normal(6, 40)
    norm = webnorm.LayerNorm(40)
    with pytest.raises(webnorm.WebnormError, match="backward needs the values that forward saves"):
        norm.backward(x)
    norm(x)
    norm.backward(x)
    with pytest.raises(webnorm.WebnormError, match="backward needs the values that forward saves"):
        norm.backward(x)
    norm.eval()(x)
    with pytest.raises(webnorm.WebnormError, match="while training"):
        norm.backward(x)
    norm.train()(x)
    norm.backward(x)


def test_state_goes_round(device: Device) -> None:
    source, target = webnorm.LayerNorm((5, 8)), webnorm.LayerNorm((5, 8))
    source.weight, source.bias = normal(5, 8), normal(5, 8)
    target.load_state_dict(source.state_dict())
    x = normal(6, 5, 8)
    np.testing.assert_array_equal(target(x), source(x))
    state = source.state_dict()
    state["weight"][:] = 0.0
    assert source.weight.any()


def test_the_state_is_cast() -> None:
    norm = webnorm.RMSNorm(3, dtype=np.float16)
    norm.load_state_dict({"weight": np.array([1.0, 2.0, 1 / 3])})
    assert norm.weight is not None and norm.weight.dtype == np.float16
    assert norm.weight[2] == np.float16(1 / 3)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"weight": np.ones(3)}, "the state lacks 'bias'; expected weight, bias"),
        ({"weight": np.ones(3), "bias": np.ones(3), "biass": np.ones(3)}, "'biass'; did you mean 'bias'"),
        ({"weight": np.ones(3), "bias": np.ones(4)}, "bias has shape (4,); expected (3,)"),
        ({"weight": np.ones(3), "bias": [0.0] * 3}, "bias is a list; expected a NumPy array"),
        ({"weight": np.ones(3), "bias": np.array(["a", "b", "c"])}, "bias has dtype <U1; expected numbers"),
    ],
)
def test_a_state_that_does_not_fit(state: dict[str, Any], message: str) -> None:
    norm = webnorm.LayerNorm(3)
    norm.weight = np.full(3, 7.0, np.float32)
    with pytest.raises(webnorm.WebnormError) as caught:
        norm.load_state_dict(state)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert norm.weight.tolist() == [7.0] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"normalized_shape": 0}, "expected one element or more"),
        ({"dtype": "float64"}, "unknown dtype 'float64'"),
        ({"dtype": "int8"}, "dtype 'int8' is a type of y alone"),
        ({"device": 0}, "device is 0"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        webnorm.LayerNorm(**{"normalized_shape": 3, **arguments})
    assert message in str(caught.value)


def test_mistakes_in_calls(device: Device) -> None:
    norm = webnorm.LayerNorm(40)
    with pytest.raises(webnorm.WebnormError, match="x has shape"):
        norm(normal(40, 6))
    norm(normal(6, 40))
    with pytest.raises(webnorm.WebnormError, match="dy has shape"):
        norm.backward(normal(5, 40))
