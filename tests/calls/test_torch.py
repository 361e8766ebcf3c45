"""The functions compared with torch's on the CPU: float64 results and gradients, and rules for dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import webnorm
from webnorm.gpu.device import Device
from webnorm.op.corpus import Overrides
from webnorm.op.dtypes import DTYPES, STORAGE, Array, finfo
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.case import NormCase as Case
from webnorm.ops.norms.corpus import CASES

torch = pytest.importorskip("torch", reason="torch is not installed")

PLAIN = Overrides(options=("weight=false", "bias=false"))
# One case of each kind, because compiling for every row length and dtype takes most of the time.
CORPUS = (
    "normal",
    "cols-1",
    "cols-5",
    "cols-199",
    "shift-1e4",
    "onnxruntime-28463",
    "onnxruntime-21935",
    "onnxruntime-31626",
    "mlx-2238",
    "pytorch-51102",
    "pytorch-40302",
    "pytorch-41527",
    "outlier",
    "tiny",
    "row-scales",
    "nan-row",
    "inf-row",
)


def cases() -> Iterator[Any]:
    found = {case.name: case for case in CASES}
    for name in CORPUS:
        for dtype in STORAGE:
            for op in ("layer_norm", "rms_norm"):
                if found[name].problem(OPS[op], dtype, PLAIN) is not None:
                    yield pytest.param(found[name], op, dtype, id=f"{name}-{op}-{dtype}")


def double(array: Array) -> Any:
    """Return a float64 tensor with gradients."""
    return torch.tensor(array.astype(np.float64), requires_grad=True)


def forward(op: str, x: Any, shape: list[int], weight: Any, bias: Any, eps: float) -> Any:
    """Compute torch's function on tensors; its RMSNorm has no bias."""
    if op == "layer_norm":
        return torch.nn.functional.layer_norm(x, shape, weight, bias, eps)
    return torch.nn.functional.rms_norm(x, shape, weight, eps)


def ours(
    op: str, x: Array, shape: int | tuple[int, ...], weight: Array | None, bias: Array | None, eps: float
) -> Any:
    if op == "layer_norm":
        return webnorm.layer_norm(x, shape, weight, bias, eps)
    return webnorm.rms_norm(x, shape, weight, eps)


def close(got: Array, answer: Any, size: Any, dtype: str) -> None:
    """Check a result against torch's. `size` is the size of the summed terms.

    The tolerance is the dtype's rounding plus the rounding of float32 sums.
    """
    expected = answer.detach().numpy()
    assert got.dtype == DTYPES[dtype] and got.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(got.astype(np.float64)), finite)
    error = np.abs(np.where(finite, got.astype(np.float64) - expected, 0.0))
    roundoff = 0.5 * float(finfo(dtype).eps)
    smallest = float(finfo(dtype).smallest_subnormal)
    with np.errstate(invalid="ignore"):
        allowed = roundoff * np.abs(expected) + smallest + 1e-5 * np.broadcast_to(size, expected.shape)
    assert (error <= np.where(finite, allowed, 1.0)).all(), float(np.nanmax(error - allowed))


@pytest.mark.parametrize(("case", "op", "dtype"), list(cases()))
def test_corpus(case: Case, op: str, dtype: str, device: Device) -> None:
    """Compare y and dx of the corpus with torch in float64, on the same x."""
    problem = case.problem(OPS[op], dtype, PLAIN)
    assert problem is not None
    x = case.draw(Task(OPS[op], problem))["x"]
    dy = np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype)
    tensor = double(x)
    answer = forward(op, tensor, [problem.cols], None, None, problem.eps)
    y = ours(op, x, problem.cols, None, None, problem.eps)
    largest = np.nan_to_num(np.abs(answer.detach().numpy()), nan=0.0).max(axis=1, keepdims=True)
    close(y, answer, 1.0 + largest, dtype)
    answer.backward(torch.tensor(dy.astype(np.float64)))
    if op == "layer_norm":
        dx, _, _ = webnorm.layer_norm_backward(dy, x, problem.cols, eps=problem.eps, bias_grad=False)
    else:
        dx, _ = webnorm.rms_norm_backward(dy, x, problem.cols, eps=problem.eps)
    # A gradient is a sum of terms of rstd's size, which may cancel.
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        spread = wide.var(axis=1) if op == "layer_norm" else (wide * wide).mean(axis=1)
        rstd = 1.0 / np.sqrt(spread + problem.eps)[:, None]
        size = rstd * (np.abs(dy.astype(np.float64)) + 1.0) * (1.0 + largest)
    if np.nanmax(size) > float(finfo(dtype).max) / 4:
        return
    close(dx, tensor.grad, np.nan_to_num(size), dtype)


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 40), (40,)),
    ((6, 8, 5), (8, 5)),
    ((40,), (40,)),
]


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("affine", ["none", "weight", "both"])
@pytest.mark.parametrize(("shape", "normalized"), SHAPES)
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_values_and_gradients(
    op: str, shape: tuple[int, ...], normalized: tuple[int, ...], affine: str, dtype: str, device: Device
) -> None:
    rng = np.random.default_rng(len(shape))

    def draw(*sizes: int) -> Array:
        return rng.standard_normal(sizes).astype(DTYPES[dtype])

    x, dy = draw(*shape), draw(*shape)
    weight = None if affine == "none" else draw(*normalized)
    bias = draw(*normalized) if affine == "both" and op == "layer_norm" else None
    tensors = [None if array is None else double(array) for array in (x, weight, bias)]
    answer = forward(op, tensors[0], list(normalized), tensors[1], tensors[2], 1e-5)
    close(ours(op, x, normalized, weight, bias, 1e-5), answer, 4.0, dtype)
    answer.backward(torch.tensor(dy.astype(np.float64)))
    if op == "layer_norm":
        found = webnorm.layer_norm_backward(dy, x, normalized, weight, bias_grad=bias is not None)
    else:
        found = (*webnorm.rms_norm_backward(dy, x, normalized, weight, eps=1e-5), None)
    for got, tensor in zip(found, tensors, strict=True):
        assert (got is None) == (tensor is None)
        if got is not None and tensor is not None:
            close(got, tensor.grad, 20.0, dtype)


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_torchs_own_narrow_results(op: str, dtype: str, device: Device) -> None:
    """torch with the same dtype and its default eps returns the same dtype.

    Values are within two roundings.
    """
    rng = np.random.default_rng(0)
    # The values are so small that the default eps decides the result.
    x = (rng.standard_normal((6, 40)) * 0.01).astype(DTYPES[dtype])
    own = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[dtype]
    tensor = torch.tensor(x.astype(np.float32)).to(own)
    function = getattr(torch.nn.functional, op)
    answer = function(tensor, [40])
    assert answer.dtype == own
    y = getattr(webnorm, op)(x, 40)
    assert y.dtype == DTYPES[dtype]
    roundoff = float(finfo(dtype).eps)
    np.testing.assert_allclose(y.astype(np.float64), answer.double().numpy(), rtol=2 * roundoff, atol=1e-5)


@pytest.mark.parametrize("module", ["LayerNorm", "RMSNorm"])
def test_modules_share_their_state(module: str, device: Device) -> None:
    """torch's state loads into the module and the module's state into torch, and both compute the same."""
    theirs = getattr(torch.nn, module)((8, 5))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_()
    mine = getattr(webnorm, module)((8, 5))
    assert mine.eps == theirs.eps
    mine.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((6, 8, 5)).astype(np.float32)
    dy = np.random.default_rng(1).standard_normal((6, 8, 5)).astype(np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    answer = theirs(tensor)
    np.testing.assert_allclose(mine(x), answer.detach().numpy(), rtol=1e-5, atol=1e-5)
    answer.backward(torch.tensor(dy))
    np.testing.assert_allclose(mine.backward(dy), tensor.grad.numpy(), rtol=1e-4, atol=1e-5)
    for name, parameter in theirs.named_parameters():
        np.testing.assert_allclose(
            getattr(mine, f"{name}_grad"), parameter.grad.numpy(), rtol=1e-4, atol=1e-5
        )
    fresh = getattr(torch.nn, module)((8, 5))
    fresh.load_state_dict({name: torch.tensor(value) for name, value in mine.state_dict().items()})
