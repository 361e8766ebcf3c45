"""The functions with torch's and ONNX's names: device arrays, options, empty arrays, types, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import webnorm
from bench.meanings import formulas
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, STORAGE, Array

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 6, 3, 4)).astype(np.float32)
WEIGHT, BIAS = RNG.standard_normal((2, 6)).astype(np.float32)
LAST = np.ascontiguousarray(np.moveaxis(X, 1, -1))


def on(device: Device, array: Array) -> webnorm.GpuArray:
    return webnorm.GpuArray.from_numpy(array, device)


def close(found: Any, expected: Array, tolerance: float = 1e-5) -> None:
    got = np.asarray(found).astype(np.float64)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", STORAGE)
def test_group_norm_in_every_type(kind: str, device: Device) -> None:
    x = X.astype(DTYPES[kind])
    y = webnorm.group_norm(x, 3, WEIGHT, BIAS, device=device)
    assert y.dtype == x.dtype
    expected = formulas.group_norm(
        x.astype(np.float64), 3, WEIGHT.astype(np.float64), BIAS.astype(np.float64)
    )
    close(y, expected, {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[kind])


def test_group_norm_of_other_layouts(device: Device) -> None:
    expected = formulas.group_norm(X.astype(np.float64), 3, WEIGHT, BIAS)
    close(webnorm.group_norm(np.asfortranarray(X), 3, WEIGHT, BIAS), expected)
    y = webnorm.group_norm(np.moveaxis(X, 1, -1), 3, WEIGHT, BIAS, channels_last=True)
    close(np.moveaxis(y, -1, 1), expected)
    close(
        webnorm.group_norm(on(device, LAST), 3, WEIGHT, BIAS, channels_last=True),
        np.moveaxis(expected, 1, -1),
    )


def test_group_norm_with_residual_and_activation(device: Device) -> None:
    out = webnorm.group_norm(X, 2, WEIGHT, residual=X, activation="silu")
    np.testing.assert_array_equal(out.h, 2 * X)
    z = formulas.group_norm(2.0 * X.astype(np.float64), 2, WEIGHT.astype(np.float64))
    close(out.y, z / (1 + np.exp(-z)))


def test_results_are_where_x_is(device: Device) -> None:
    x = on(device, X)
    function: Any
    for function, args in ((webnorm.group_norm, (2,)), (webnorm.instance_norm, ())):
        y = function(x, *args)
        assert isinstance(y, webnorm.GpuArray) and y.device is device
        np.testing.assert_array_equal(y.numpy(), function(X, *args, device=device))
    dx, dweight, dbias = webnorm.group_norm_backward(x, x, 2, WEIGHT, BIAS)
    assert isinstance(dx, webnorm.GpuArray) and isinstance(dweight, webnorm.GpuArray)
    assert webnorm.softmax(x).shape == webnorm.normalize(x, dim=-1).shape == X.shape
    assert dbias is not None and dbias.shape == (6,)


def test_dimensions_of_size_1_need_no_copy(device: Device) -> None:
    x = X.reshape(2, 72, 1, 1)
    close(webnorm.normalize(on(device, x)), formulas.normalize(x.astype(np.float64)))
    close(
        webnorm.mean_variance_normalization(on(device, x), axes=(1, 2)),
        formulas.standardized(X.reshape(2, 72, 1, 1).astype(float), (1, 2), 0.0),
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: webnorm.group_norm(x, 3, WEIGHT),
        lambda x: webnorm.group_norm(x, 3, residual=x).y,
        webnorm.instance_norm,
        lambda x: webnorm.instance_norm(x, np.zeros(6), np.ones(6)),
        lambda x: webnorm.group_normalization(x, WEIGHT, BIAS, 3),
        lambda x: webnorm.mean_variance_normalization(x, axes=(1, 2, 3)),
        lambda x: webnorm.lp_normalization(x),
        webnorm.normalize,
        webnorm.softmax,
        webnorm.log_softmax,
        lambda x: webnorm.softmax_backward(x, x),
        lambda x: webnorm.normalize_backward(x, x),
        lambda x: webnorm.group_norm_backward(x, x, 3)[0],
        lambda x: webnorm.skip_layer_normalization(x, x, np.ones(4, np.float32))[0],
    ],
)
def test_empty_batches_give_empty_results(call: Callable[[Any], Any], device: Device) -> None:
    y = call(X[:0])
    assert isinstance(y, np.ndarray) and y.shape == (0, 6, 3, 4) and y.dtype == np.float32


def test_gradients_of_an_empty_batch_are_zero(device: Device) -> None:
    x: Any
    for x in (X[:0], on(device, X[:0])):
        dx, dweight, dbias = webnorm.group_norm_backward(x, x, 3, WEIGHT, BIAS)
        assert dx.shape == (0, 6, 3, 4) and type(dweight) is type(x)
        assert not np.asarray(dweight).any() and not np.asarray(dbias).any()


def test_softmax_with_masks(device: Device) -> None:
    mask = np.where(RNG.random((3, 4)) < 0.5, -np.inf, 0.0).astype(np.float32)
    mask[:, 0] = 0.0
    expected = formulas.softmax(0.5 * X.astype(np.float64) + mask, -1)
    close(webnorm.softmax(X, mask=mask, scale=0.5), expected)
    close(webnorm.softmax(X, mask=mask[None, None], scale=0.5), expected)
    close(webnorm.softmax(on(device, X), mask=mask, scale=0.5), expected)
    hidden = np.full((3, 4), -np.inf, np.float32)
    assert np.isnan(webnorm.softmax(X, mask=hidden)).all()
    assert not webnorm.softmax(X, mask=hidden, fully_masked="zeros").any()
    causal = np.where(np.arange(4) <= np.arange(3)[:, None] + 1, 0.0, -np.inf)
    close(webnorm.softmax(X, causal="lower_right"), formulas.softmax(X.astype(np.float64) + causal, -1))
    assert webnorm.softmax(X.astype(np.float16), dtype="float32").dtype == np.float32


def test_running_statistics_change_in_place(device: Device) -> None:
    mean, variance = np.zeros(6, np.float32), np.ones(6, np.float64)
    webnorm.instance_norm(X, mean, variance, momentum=0.3)
    after = formulas.updated(np.zeros(6), np.ones(6), X.astype(np.float64), 0.3)
    close(mean, after[0])
    close(variance, after[1])
    y = webnorm.instance_norm(X, mean, variance, WEIGHT, BIAS, use_input_stats=False)
    close(y, formulas.running(X.astype(float), mean.astype(float), variance, WEIGHT, BIAS, 1e-5))


def test_opset_18_has_one_scale_per_group(device: Device) -> None:
    scale, bias = WEIGHT[:3], BIAS[:3]
    old = webnorm.group_normalization(X, scale, bias, 3, opset=18)
    new = webnorm.group_normalization(X, np.repeat(scale, 2), np.repeat(bias, 2), 3)
    np.testing.assert_array_equal(old, new)
    assert webnorm.group_normalization(X, on(device, WEIGHT), BIAS, 6, opset=18).shape == X.shape


def test_constant_rows_are_zero(device: Device) -> None:
    ones = np.full((2, 3, 4, 5), 7.25, np.float32)
    assert not webnorm.mean_variance_normalization(ones).any()
    assert not webnorm.lp_normalization(0 * ones).any() and not webnorm.normalize(0 * ones).any()


def test_norms_below_the_eps_of_normalize(device: Device) -> None:
    x = np.array([[3e-13, 4e-13]], np.float32)
    close(webnorm.lp_normalization(x), np.array([[0.6, 0.8]]))
    close(webnorm.normalize(x), np.array([[0.3, 0.4]]))


def test_gradients_that_do_not_exist_are_none(device: Device) -> None:
    assert webnorm.group_norm_backward(X, X, 2)[1:] == (None, None)
    _, dweight, dbias = webnorm.group_norm_backward(X, X, 2, WEIGHT)
    assert dweight is not None and dbias is None
    assert webnorm.group_norm_backward(X, X, 2, None, BIAS)[1] is None


def refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)


ONES = np.ones(4, np.float32)
IDS, TABLE = np.array([[0, 1]]), np.ones((2, 4), np.float32)
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: webnorm.group_norm(X, 4), "num_groups is 4; expected a divisor of the 6 channels"),
    (lambda: webnorm.group_norm(X, 0), "num_groups is 0"),
    (lambda: webnorm.group_norm(X, 2.0), "num_groups is 2.0; expected an int"),  # type: ignore[call-overload]
    (lambda: webnorm.group_norm(X[:, :, :0], 2), "x has shape (2, 6, 0, 4); expected elements to normalize"),
    (lambda: webnorm.group_norm(X[:, :0], 2), "x has shape (2, 0, 3, 4); expected elements to normalize"),
    (lambda: webnorm.group_norm(X[0, 0, 0], 2), "x has shape (4,); expected two dimensions or more"),
    (lambda: webnorm.group_norm(X.astype(np.float64), 2), "x has dtype float64; expected float32"),
    (lambda: webnorm.group_norm(X, 2, WEIGHT[:3]), "weight has shape (3,); expected (6,)"),
    (lambda: webnorm.group_norm(X, 2, WEIGHT, BIAS.astype(np.float16)), "dtype"),
    (lambda: webnorm.group_norm(X, 2, eps=-1.0), "eps is -1.0"),
    (lambda: webnorm.group_norm(X, 2, activation="relu"), "unknown activation 'relu'"),
    (lambda: webnorm.group_norm(X, 2, residual=X[:1]), "residual has shape (1, 6, 3, 4); expected x's"),
    (lambda: webnorm.group_norm(X, 2, kernel="fast"), "unknown kernel 'fast'"),
    (lambda: webnorm.group_norm(X, 2, channels_last=2), "channels_last is 2; expected True or False"),  # type: ignore[call-overload]
    (lambda: webnorm.group_norm_backward(X[:1], X, 2), "dy has shape (1, 6, 3, 4); expected x's"),
    (lambda: webnorm.instance_norm(X, WEIGHT[:2], WEIGHT), "running_mean is float32 of shape (2,)"),
    (lambda: webnorm.instance_norm(X, WEIGHT.astype(int), WEIGHT), "running_mean is int64"),
    (lambda: webnorm.instance_norm(X, use_input_stats=False), "expected running_mean and running_var"),
    (lambda: webnorm.instance_norm(X, WEIGHT, BIAS, momentum=float("nan")), "momentum is nan"),
    (lambda: webnorm.normalize(X, 3), "p is 3; expected 1 or 2"),
    (lambda: webnorm.normalize(X, 2, 4), "dim is 4; expected an int from -4 to 3"),
    (lambda: webnorm.softmax(X, True), "dim is True"),
    (lambda: webnorm.softmax(X, 1, mask=X), "dim is 1; expected the last of two dimensions"),
    (lambda: webnorm.softmax(X, mask=ONES[:3]), "mask has shape (3,); expected (3, 4) or x's (2, 6, 3, 4)"),
    (lambda: webnorm.softmax(X, causal="left"), "unknown causal 'left'"),
    (lambda: webnorm.softmax(X, dtype="float64"), "unknown dtype 'float64'"),
    (lambda: webnorm.softmax_backward(X, X[:1]), "dy has shape"),
    (lambda: webnorm.group_normalization(X, WEIGHT, BIAS, 3, opset=6), "opset is 6; expected 18 or 21"),
    (
        lambda: webnorm.group_normalization(X, WEIGHT, BIAS, 3, opset=18),
        "scale has shape (6,); expected (3,)",
    ),
    (lambda: webnorm.group_normalization(X, WEIGHT, BIAS, 3, stash_type=16), "stash_type is 16"),
    (lambda: webnorm.group_normalization(X, WEIGHT, BIAS, 3, -1.0), "epsilon is -1.0"),
    (lambda: webnorm.instance_normalization(X, WEIGHT, ONES), "B has shape (4,); expected (6,)"),
    (lambda: webnorm.mean_variance_normalization(X, (0, 0)), "axes is (0, 0); expected each axis once"),
    (lambda: webnorm.mean_variance_normalization(X[:0]), "X has shape (0, 6, 3, 4); expected elements along"),
    (lambda: webnorm.lp_normalization(X, 1, 0), "p is 0; expected 1 or 2"),
    (lambda: webnorm.skip_layer_normalization(X, X[0, 0, 0, :3], ONES), "skip has shape (3,)"),
    (lambda: webnorm.skip_layer_normalization(X, X, WEIGHT), "gamma has shape (6,); expected (4,)"),
    (lambda: webnorm.embed_layer_normalization(IDS + 1, None, TABLE, TABLE, None, ONES, ONES), "the id 2"),
    (
        lambda: webnorm.embed_layer_normalization(0.5 * IDS, None, TABLE, TABLE, None, ONES, ONES),
        "expected ints",
    ),
    (
        lambda: webnorm.embed_layer_normalization(IDS[0], None, TABLE, TABLE, None, ONES, ONES),
        "(batch, sequence)",
    ),
    (
        lambda: webnorm.group_norm_ms(LAST, WEIGHT, BIAS, 2, 2),
        "activation is 2; expected 0 (none) or 1 (SiLU)",
    ),
    (
        lambda: webnorm.skip_group_norm(X, WEIGHT, BIAS, X, groups=2, activation=0, channels_last=0),
        "channels_last is 0",
    ),
    (lambda: webnorm.op_function("layer_norm"), "call webnorm.layer_norm"),
    (lambda: webnorm.op_function("group_nor"), "unknown op 'group_nor'"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=lambda one: one if isinstance(one, str) else "")
def test_mistakes(call: Callable[[], Any], message: str) -> None:
    refused(call, message)


def test_arrays_that_numpy_would_have_to_change(device: Device) -> None:
    x, bias = on(device, X), on(device, BIAS)
    last, narrow = on(device, LAST), on(device, X.astype(ml_dtypes.bfloat16))
    for call in (
        lambda: webnorm.normalize(x),
        lambda: webnorm.softmax(x, 1),
        lambda: webnorm.softmax(narrow, dtype="float32"),
        lambda: webnorm.mean_variance_normalization(x),
        lambda: webnorm.instance_norm(x, WEIGHT, BIAS),
        lambda: webnorm.group_normalization(X, on(device, WEIGHT[:3]), BIAS[:3], 3, opset=18),
    ):
        refused(call, "numpy()")
    refused(
        lambda: webnorm.skip_group_norm(last, WEIGHT, BIAS, last, bias, groups=2, activation=0),
        "expected NumPy arrays as skip and bias",
    )
