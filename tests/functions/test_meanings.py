"""The public cases of torch, ONNX and onnxruntime pass, and docs/meanings.md has the current table."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench.meanings import formulas, microsoft_cases, onnx_cases, table, torch_cases
from bench.meanings.outcomes import Outcome, Tolerance, difference, outcome, rejected
from bench.meanings.torch_cases import FUNCTIONS, MODULES, STATELESS, Sample, samples
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, Array, finfo

SAMPLES = samples()
HAS_ONNX = importlib.util.find_spec("onnx") is not None


@pytest.mark.sampled(8)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: f"{one.operator}-{one.number}")
def test_samples_of_torch(sample: Sample, device: Device) -> None:
    compute = torch_cases.function_outcome if "function" in sample.data else torch_cases.module_outcome
    assert compute(sample).failure is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", FUNCTIONS)
def test_samples_of_torch_in_16_bits(operator: str, kind: str, device: Device) -> None:
    roundoff = float(finfo(kind).eps)
    for sample in SAMPLES:
        if sample.operator != operator or not has_formula(sample) or has_negative_eps(sample):
            continue
        args, kwargs = (narrowed(one, DTYPES[kind]) for one in sample.arguments())
        found = FUNCTIONS[operator][0](*args, **kwargs)
        with np.errstate(all="ignore"):
            expected = FUNCTIONS[operator][1](
                *map(torch_cases.widened, args),
                **{name: torch_cases.widened(value) for name, value in kwargs.items()},
            )
        assert difference(found, expected, Tolerance(roundoff, 1e-5), DTYPES[kind]) is None


def narrowed(values: Any, dtype: Any) -> Any:
    """Return arguments with arrays of x's type. Running statistics stay as they are."""
    if isinstance(values, dict):
        return {
            name: value if "running" in name else narrowed([value], dtype)[0]
            for name, value in values.items()
        }
    return [value.astype(dtype) if isinstance(value, np.ndarray) else value for value in values]


def has_negative_eps(sample: Sample) -> bool:
    args, kwargs = sample.arguments()
    return any(isinstance(one, float) and one < 0 for one in (*args, kwargs.get("eps")))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "compute",
    [pytest.param(compute, id=f"{operator}-{name}") for operator, name, compute in microsoft_cases.cases()],
)
def test_cases_of_onnxruntime(compute: Callable[[], Outcome], device: Device) -> None:
    assert compute().passed


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ONNX, reason="onnx is not installed")
def test_the_table_is_fresh(device: Device) -> None:
    import onnx

    found = table.results()
    failures = [one for outcomes in found.values() for one in outcomes if one.failure is not None]
    assert failures == []
    assert {operator for source, operator in found if source == "ONNX"} == {*onnx_cases.FUNCTIONS}
    page = table.PAGE.read_text(encoding="utf-8")
    if f"onnx {onnx.__version__}." not in page:
        pytest.skip(f"the page has the cases of another version than onnx {onnx.__version__}")
    assert table.page_with(table.table_of(found)) == page, "stale: python -m bench.meanings --write"


def test_the_page_names_every_operator_of_torch() -> None:
    page = table.PAGE.read_text(encoding="utf-8")
    operators = {*FUNCTIONS, *MODULES, *STATELESS}
    assert {sample.operator for sample in SAMPLES} == operators
    for operator in operators:
        count = sum(sample.operator == operator for sample in SAMPLES)
        assert f"| torch | `{operator}` | {count} |" in page


def test_wrong_results_fail() -> None:
    ones = np.ones((2, 3))
    close = Tolerance(1e-6, 1e-6)
    assert difference(ones.astype(np.float32), ones, close, np.float32) is None
    assert difference(ones + 1e-3, ones, close) == "off by 0.001"
    assert difference(ones[:1], ones, close) == "shape (1, 3) in place of (2, 3)"
    assert difference(ones, ones, close, np.float32) == "dtype float64 in place of float32"
    assert difference(np.full((2, 3), np.nan), ones, close) is not None
    assert rejected(lambda: None) == "no error"

    def raising() -> str | None:
        raise WebnormError("x is wrong")

    assert outcome("case", raising).failure == "x is wrong"


def test_gradients_by_differences() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4))
    dy = np.ones((3, 4))
    found = formulas.gradients(lambda x, weight: x**2 * weight, {"x": x, "weight": x[0]}, dy)
    np.testing.assert_allclose(found["x"], 2 * x * x[0], atol=1e-7)
    np.testing.assert_allclose(found["weight"], (x**2).sum(0), atol=1e-7)


# --- the formulas compared with torch


def tensors(value: Any) -> Any:
    """Return an argument with arrays as float64 tensors."""
    import torch

    return torch.tensor(value.astype(np.float64)) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("operator", [*FUNCTIONS, *MODULES, *STATELESS])
def test_formulas_agree_with_torch(operator: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for sample in SAMPLES:
        if sample.operator == operator and has_formula(sample):
            pair = of_function(torch, sample) if operator in FUNCTIONS else of_module(torch, sample)
            np.testing.assert_allclose(*pair, rtol=1e-6, atol=1e-6)


def has_formula(sample: Sample) -> bool:
    """Return False for samples that torch or webnorm rejects."""
    args, kwargs = sample.arguments()
    if "error" in sample.data or "dtype" in kwargs or kwargs.get("p", 2.0) not in (1.0, 2.0):
        return False
    return sample.operator != "nn.functional.batch_norm" or args[0].ndim > 1


def of_function(torch: Any, sample: Sample) -> tuple[Array, Array]:
    """Return torch's result in float64, and the formula's."""
    args, kwargs = sample.arguments()
    function = torch
    for part in sample.operator.split("."):
        function = getattr(function, part)
    expected = function(*map(tensors, args), **{name: tensors(value) for name, value in kwargs.items()})
    wide = [*map(torch_cases.widened, args)]
    with np.errstate(all="ignore"):
        given = {name: torch_cases.widened(value) for name, value in kwargs.items()}
        return expected.numpy(), FUNCTIONS[sample.operator][1](*wide, **given)


def of_module(torch: Any, sample: Sample) -> tuple[Array, Array]:
    """Return the result of torch's module with the state of webnorm's, and the formula's."""
    args, kwargs = sample.arguments()
    x = sample.x()
    module = getattr(torch.nn, sample.operator.removeprefix("nn."))(*args, **kwargs)
    if sample.operator in STATELESS:
        return module(tensors(x)).numpy(), STATELESS[sample.operator][1](x.astype(np.float64), *args)
    ours = MODULES[sample.operator](*args, **kwargs).train(sample.data["training"])
    state = torch_cases.state_of(ours, sample.number)
    module = module.double().train(ours.training)
    module.load_state_dict({name: torch.tensor(value) for name, value in state.items()}, strict=True)
    expected = module(tensors(x)).detach().numpy()
    return expected, torch_cases.module_formula(ours, x, state, ours.training)
