"""GroupNorm and InstanceNorm as objects: parameters, state, gradients, and mistakes."""

from __future__ import annotations

import copy
import pickle
from typing import Any, cast

import numpy as np
import pytest

import webnorm
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES

RNG = np.random.default_rng(8)
X, DY = RNG.standard_normal((2, 4, 6, 5)).astype(np.float32)
STATE = {"weight": RNG.standard_normal(6), "bias": RNG.standard_normal(6)}


def test_parameters_at_first() -> None:
    norm = webnorm.GroupNorm(3, 6, dtype="bfloat16")
    assert norm.weight is not None and norm.bias is not None
    assert norm.weight.dtype == DTYPES["bfloat16"] and norm.weight.all() and not norm.bias.any()
    assert list(webnorm.GroupNorm(3, 6, bias=False).state_dict()) == ["weight"]
    assert not webnorm.GroupNorm(3, 6, affine=False).state_dict()
    assert not webnorm.InstanceNorm1d(6).state_dict()
    tracking = webnorm.InstanceNorm2d(6, track_running_stats=True)
    assert list(tracking.state_dict()) == ["running_mean", "running_var", "num_batches_tracked"]
    assert tracking.state_dict()["num_batches_tracked"].dtype == np.int64
    assert repr(norm) == "GroupNorm(3, 6, eps=1e-05, affine=True)"


@pytest.mark.parametrize("kind", ["numpy", "device"])
def test_forward_and_backward(kind: str, device: Device) -> None:
    given: list[Any] = [X, DY]
    if kind == "device":
        given = [webnorm.GpuArray.from_numpy(array, device) for array in given]
    norm = webnorm.GroupNorm(3, 6, eps=1e-3, activation="silu", device=device)
    norm.load_state_dict(STATE)
    y, dx = norm(given[0]), norm.backward(given[1])
    assert type(y) is type(dx) is type(given[0])
    settings: dict[str, Any] = {"eps": 1e-3, "activation": "silu", "device": device}
    np.testing.assert_array_equal(np.asarray(y), webnorm.group_norm(X, 3, norm.weight, norm.bias, **settings))
    expected = webnorm.group_norm_backward(DY, X, 3, norm.weight, norm.bias, **settings)
    for found, one in zip((dx, norm.weight_grad, norm.bias_grad), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(found), one)
    with pytest.raises(webnorm.WebnormError, match="call forward before it"):
        norm.backward(given[1])


def test_tracking_and_evaluation(device: Device) -> None:
    norm = webnorm.InstanceNorm1d(6, momentum=1.0, track_running_stats=True, affine=True)
    y = norm(X)
    dx = norm.backward(DY)
    assert isinstance(y, np.ndarray) and isinstance(dx, np.ndarray) and dx.shape == X.shape
    assert norm.running_mean is not None
    np.testing.assert_allclose(norm.running_mean, X.mean((0, 2)), atol=1e-6)
    np.testing.assert_array_equal(
        norm.bias_grad, webnorm.group_norm_backward(DY, X, 6, norm.weight, norm.bias)[2]
    )
    before = copy.deepcopy(norm).state_dict()
    z = norm.eval()(X)
    assert np.abs(z - y).max() > 0.1
    for name, value in norm.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    alone = norm(X[0])
    np.testing.assert_array_equal(alone, z[0])
    again = pickle.loads(pickle.dumps(norm))
    np.testing.assert_array_equal(again(X), z)


def test_no_batch_while_training(device: Device) -> None:
    norm = webnorm.InstanceNorm1d(6)
    y, dx = norm(X[0]), norm.backward(DY[0])
    assert y.shape == dx.shape == (6, 5)
    np.testing.assert_array_equal(y, webnorm.instance_norm(X[:1])[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: webnorm.GroupNorm(4, 6), "num_groups is 4; expected a divisor of the 6 channels"),
        (lambda: webnorm.GroupNorm(1, 0), "num_channels is 0; expected 1 to 2^31 - 1"),
        (lambda: webnorm.GroupNorm(1, 1 << 50), "num_channels is 1125899906842624; expected 1 to"),
        (lambda: webnorm.GroupNorm(1, 6, eps=-1), "eps is -1"),
        (lambda: webnorm.GroupNorm(1, 6, affine=cast("Any", "no")), "affine is 'no'"),
        (lambda: webnorm.GroupNorm(1, 6, dtype="float64"), "unknown dtype 'float64'"),
        (lambda: webnorm.GroupNorm(3, 6)(X[:, :3]), "expected 6 channels, not 3"),
        (lambda: webnorm.InstanceNorm2d(6)(X[0]), "expected 3 or 4 dimensions"),
        (lambda: webnorm.InstanceNorm1d(4)(X), "expected 4 channels, not 6"),
        (lambda: webnorm.InstanceNorm1d(6).load_state_dict(STATE), "unknown key in the state 'weight'"),
        (lambda: webnorm.GroupNorm(3, 6).load_state_dict({"weight": STATE["weight"]}), "lacks 'bias'"),
    ],
)
def test_mistakes(make: Any, message: str, device: Device) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        make()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_dy_has_the_shape_of_x(device: Device) -> None:
    norm = webnorm.GroupNorm(3, 6)
    norm(X)
    with pytest.raises(webnorm.WebnormError, match="dy has shape"):
        norm.backward(DY[:1])
