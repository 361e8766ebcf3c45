"""torch's public samples, computed by webnorm's functions and modules and compared with float64 formulas."""

from __future__ import annotations

import inspect
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

import webnorm
from bench.meanings import formulas
from bench.meanings.outcomes import Outcome, Tolerance, difference, first, outcome, rejected
from bench.meanings.torch_samples import SAMPLES
from webnorm.functions.dimensions import channels_of
from webnorm.op.dtypes import Array

# The tolerance of torch.testing.assert_close for float32.
FORWARD = Tolerance(1.3e-6, 1e-5)
# A gradient adds as many terms as an input has elements.
BACKWARD = Tolerance(1e-4, 1e-4)
# Gradients of larger samples are left out: differences evaluate the formula twice per element.
_MOST_ELEMENTS = 4000
# The batch of the samples of InstanceNorm.
_BATCH = 4


@dataclass(frozen=True)
class Sample:
    """One sample of a function or module of torch, with arrays that are drawn from its number."""

    number: int
    data: Mapping[str, Any]

    @property
    def operator(self) -> str:
        """The name in torch, such as nn.functional.group_norm."""
        return str(self.data.get("function") or self.data["module"])

    @property
    def name(self) -> str:
        """The operator, the variant, and the shapes."""
        return f"{self.operator} {self.data['variant']} {self.number}"

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments, drawn anew."""
        rng = np.random.default_rng(zlib.crc32(self.operator.encode()) + self.number)
        args = [_decoded(one, rng) for one in self.data["args"]]
        return args, {name: _decoded(one, rng, name) for name, one in self.data["kwargs"].items()}

    def x(self) -> Array:
        """Return the input of a module."""
        x: Array = _decoded(self.data["x"], np.random.default_rng(self.number))
        return x


def _decoded(value: Any, rng: np.random.Generator, name: str = "") -> Any:
    """Return an argument from its JSON. Tensors are normal numbers, and positive if they are variances."""
    if isinstance(value, list):
        return [_decoded(one, rng) for one in value]
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return value["dtype"]
    order = value.get("order", range(len(value["shape"])))
    drawn = rng.standard_normal([value["shape"][axis] for axis in order]).transpose(np.argsort(order))
    return np.asarray(np.abs(drawn) + 0.5 if name == "running_var" else drawn).astype(np.float32)


@cache
def samples() -> tuple[Sample, ...]:
    """Return all samples."""
    return tuple(Sample(number, one) for number, one in enumerate(_stored()["samples"]))


def version() -> str:
    """Return the version of torch that has these samples."""
    return str(_stored()["torch"])


@cache
def _stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SAMPLES.read_text(encoding="utf-8"))
    return found


def batch_norm(
    x: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Compute BatchNorm by webnorm: in training, the channels of the batch as one batch element's groups."""
    if not training:
        return webnorm.instance_norm(x, running_mean, running_var, weight, bias, False, eps=eps)
    channels_of(x, channels_last=False)
    channels_first = np.moveaxis(x, 1, 0)
    y = webnorm.group_norm(channels_first[None], x.shape[1], weight, bias, eps)
    return np.moveaxis(y[0], 0, 1)


# By torch's name: webnorm's function, and the formula.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "nn.functional.group_norm": (webnorm.group_norm, formulas.group_norm),
    "nn.functional.instance_norm": (webnorm.instance_norm, formulas.instance_norm),
    "nn.functional.batch_norm": (batch_norm, formulas.batch_norm),
    "nn.functional.layer_norm": (webnorm.layer_norm, formulas.layer_norm),
    "nn.functional.rms_norm": (webnorm.rms_norm, formulas.rms_norm),
    "nn.functional.normalize": (webnorm.normalize, formulas.normalize),
    "softmax": (webnorm.softmax, formulas.softmax),
    "log_softmax": (webnorm.log_softmax, formulas.log_softmax),
}


def _named(found: Any) -> dict[str, Any]:
    """Return the gradients of x and the parameters by name."""
    return dict(zip(("x", "weight", "bias"), found, strict=False))


# By torch's name: webnorm's gradients, for dy and the arguments by name.
GRADIENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "nn.functional.group_norm": lambda dy, **given: _named(webnorm.group_norm_backward(dy, **given)),
    "nn.functional.instance_norm": lambda dy, x, weight=None, bias=None, eps=1e-5, **_: _named(
        webnorm.group_norm_backward(dy, x, x.shape[1], weight, bias, eps=eps)
    ),
    "nn.functional.layer_norm": lambda dy, bias=None, **given: _named(
        webnorm.layer_norm_backward(dy, bias_grad=bias is not None, **given)
    ),
    "nn.functional.rms_norm": lambda dy, **given: _named(webnorm.rms_norm_backward(dy, **given)),
    "nn.functional.normalize": lambda dy, **given: {"x": webnorm.normalize_backward(dy, **given)},
    "softmax": lambda dy, x, dim: {"x": webnorm.softmax_backward(dy, webnorm.softmax(x, dim), dim)},
    "log_softmax": lambda dy, x, dim: {
        "x": webnorm.log_softmax_backward(dy, webnorm.log_softmax(x, dim), dim)
    },
}


def widened(value: Any) -> Any:
    """Return an argument with arrays in float64."""
    return value.astype(np.float64) if isinstance(value, np.ndarray) else value


def function_outcome(sample: Sample) -> Outcome:
    """Compute a sample of a function."""
    ours, formula = FUNCTIONS[sample.operator]
    args, kwargs = sample.arguments()
    if "error" in sample.data:
        return Outcome(sample.name, failure=rejected(lambda: ours(*args, **kwargs)))

    given = inspect.signature(formula).bind(*args, **kwargs).arguments if "dtype" not in kwargs else {}
    has_gradient = sample.operator in GRADIENTS and 0 < args[0].size <= _MOST_ELEMENTS

    def complaint() -> str | None:
        found = ours(*args, **kwargs)
        wide = {name: widened(value) for name, value in given.items()}
        with np.errstate(all="ignore"):
            expected = formula(**wide)
        wrong = difference(found, expected, FORWARD, np.float32)
        return first([wrong, *_function_gradients(sample.operator, given, wide)] if has_gradient else [wrong])

    return outcome(sample.name, complaint, has_gradient)


def _function_gradients(
    operator: str, given: Mapping[str, Any], wide: Mapping[str, Any]
) -> Iterator[str | None]:
    """Yield what is wrong with the gradients of a function's x and parameters."""
    x = given["x"]
    dy = np.random.default_rng(x.size).standard_normal(x.shape).astype(np.float32)
    arrays = {name: wide[name] for name in ("x", "weight", "bias") if wide.get(name) is not None}
    others = {name: value for name, value in wide.items() if name not in arrays}
    formula = partial(FUNCTIONS[operator][1], **others)
    found = GRADIENTS[operator](dy, **given)
    for name, expected in formulas.gradients(formula, arrays, widened(dy)).items():
        yield difference(found[name], expected, BACKWARD, np.float32)


# By the name of a module: the names of its arguments, and its formula for an x and a state.
MODULES: dict[str, Callable[..., Any]] = {
    "nn.GroupNorm": webnorm.GroupNorm,
    "nn.InstanceNorm1d": webnorm.InstanceNorm1d,
    "nn.InstanceNorm2d": webnorm.InstanceNorm2d,
    "nn.InstanceNorm3d": webnorm.InstanceNorm3d,
    "nn.LayerNorm": webnorm.LayerNorm,
    "nn.RMSNorm": webnorm.RMSNorm,
}
# Modules without parameters, which are calls of functions.
STATELESS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "nn.Softmax": (webnorm.softmax, formulas.softmax),
    "nn.Softmax2d": (lambda x: webnorm.softmax(x, -3), lambda x: formulas.softmax(x, -3)),
    "nn.LogSoftmax": (webnorm.log_softmax, formulas.log_softmax),
}


def state_of(module: Any, number: int) -> dict[str, Array]:
    """Draw a state for a module; variances are positive."""
    rng = np.random.default_rng(number)
    found = {}
    for name, value in module.state_dict().items():
        drawn = rng.standard_normal(value.shape)
        found[name] = np.asarray(np.abs(drawn) + 0.5 if name == "running_var" else drawn).astype(value.dtype)
    return found


def module_formula(module: Any, x: Array, state: Mapping[str, Array], training: bool) -> Array:
    """Return what a module computes, in float64."""
    wide = {name: value.astype(np.float64) for name, value in state.items()}
    parameters = {name: wide.get(name) for name in ("weight", "bias")}
    match module:
        case webnorm.GroupNorm():
            return formulas.group_norm(widened(x), module.num_groups, eps=module.eps, **parameters)
        case webnorm.LayerNorm():
            return formulas.layer_norm(widened(x), module.normalized_shape, eps=module.eps, **parameters)
        case webnorm.RMSNorm():
            return formulas.rms_norm(widened(x), module.normalized_shape, wide.get("weight"), module.eps)
    y = formulas.instance_norm(
        widened(in_batch(x)),
        wide.get("running_mean"),
        wide.get("running_var"),
        wide.get("weight"),
        wide.get("bias"),
        training or "running_mean" not in wide,
        eps=module.eps,
    )
    return y.reshape(x.shape)


def in_batch(x: Array) -> Array:
    """Return x with a batch dimension. The samples have 4 batch elements, and 3 channels."""
    return x if len(x) == _BATCH else x[None]


def module_outcome(sample: Sample) -> Outcome:
    """Compute a sample of a module: y, the running statistics, and the gradients of small ones."""
    args, kwargs = sample.arguments()
    x = sample.x()
    if sample.operator in STATELESS:
        ours, formula = STATELESS[sample.operator]
        return outcome(
            sample.name, lambda: difference(ours(x, *args), formula(widened(x), *args), FORWARD, np.float32)
        )

    def complaint() -> str | None:
        module = MODULES[sample.operator](*args, **kwargs).train(sample.data["training"])
        state = state_of(module, sample.number)
        module.load_state_dict(state)
        y = module(x)
        expected = module_formula(module, x, state, module.training)
        complaints = [difference(y, expected, FORWARD, np.float32), *_statistics(module, x, state)]
        return first([*complaints, *_gradients(module, x, state)] if has_gradient else complaints)

    has_gradient = sample.data["training"] and 0 < x.size <= _MOST_ELEMENTS
    return outcome(sample.name, complaint, has_gradient)


def _statistics(module: Any, x: Array, state: Mapping[str, Array]) -> Iterator[str | None]:
    """Yield what is wrong with the running statistics after a pass."""
    if "running_mean" not in state:
        return
    mean, variance = (state[name].astype(np.float64) for name in ("running_mean", "running_var"))
    if module.training:
        mean, variance = formulas.updated(mean, variance, widened(in_batch(x)), module.momentum)
    yield difference(module.running_mean, mean, FORWARD, np.float32)
    yield difference(module.running_var, variance, FORWARD, np.float32)


def _gradients(module: Any, x: Array, state: Mapping[str, Array]) -> list[str | None]:
    """Return what is wrong with the gradients of x and of the parameters."""
    dy = np.random.default_rng(x.size).standard_normal(x.shape).astype(np.float32)
    names = [name for name in ("weight", "bias") if name in state]
    wide = {"x": widened(x), **{name: widened(state[name]) for name in names}}

    def forward(x: Array, **parameters: Array) -> Array:
        return module_formula(module, x, {**state, **parameters}, training=True)

    expected = formulas.gradients(forward, wide, widened(dy))
    found = {"x": module.backward(dy), **{name: getattr(module, f"{name}_grad") for name in names}}
    return [difference(found[name], one, BACKWARD, np.float32) for name, one in expected.items()]


def outcomes() -> Iterator[tuple[str, Outcome]]:
    """Yield each sample's operator and outcome."""
    for sample in samples():
        compute = function_outcome if "function" in sample.data else module_outcome
        yield sample.operator, compute(sample)
