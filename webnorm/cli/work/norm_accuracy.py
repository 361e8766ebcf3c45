"""The accuracy of a model's norms with the model's own weights: `webnorm scan --accuracy`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from webnorm.cli.work.model_norms import norm_task
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.gpu.device import Device
    from webnorm.lab.verify.float16_arithmetic import Float16Result
    from webnorm.models.norm_use import ModelScan, NormParameters, NormUse
    from webnorm.op.dtypes import Array
    from webnorm.op.op import ExpectedOutputs, Task

# A few rows show the errors, which do not depend on their number.
_MOST_ELEMENTS = 1 << 18
# A channel is an outlier if its weight is smaller than the median by this factor. Trained norms shrink the
# channels whose activations are large. The second number is the largest factor that inputs get.
_SMALL, _MOST_FACTOR = 8.0, 1000.0
# Ops without a normalized row.
_WITHOUT_ROWS = ("softmax",)
INPUTS = (
    "inputs: normal with standard deviation 1; a channel whose weight is 8 times smaller than the median, or "
    "more, has inputs larger by that factor, at most 1000"
)


@dataclass(frozen=True)
class NormAccuracy:
    """The accuracy of one norm, over all nodes of the model that are this norm.

    Attributes
    ----------
    error : float or None
        The largest error of the kernel against float64, relative to max(1, abs(value)).
    float16_error : float or None
        The same of float16 arithmetic, of the normalized values; None for ops without rows.
    wrong : Mapping
        The nodes at which float16 arithmetic would be wrong, with the reasons.
    known : int
        The number of nodes whose weights are known, or that have none. Others get drawn weights.
    reason : str
        Why there is no error.
    """

    error: float | None = None
    float16_error: float | None = None
    wrong: Mapping[str, str] = field(default_factory=dict)
    known: int = 0
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object; an infinite error is a text."""
        half = self.float16_error
        return {
            "error": self.error,
            "float16_error": str(half) if half is not None and math.isinf(half) else half,
            "float16_wrong": [{"node": node, "reason": why} for node, why in self.wrong.items()],
            "nodes_with_weights": self.known,
            "reason": self.reason or None,
        }


def norm_accuracies(scan: ModelScan, adapter: str | None, seed: int) -> list[NormAccuracy]:
    """Return the accuracy of each norm of a scan, with the kernel that auto chooses."""
    from webnorm.gpu.device import find_adapter, open_device
    from webnorm.models.norm_parameters import read_parameters

    parameters = read_parameters(scan)
    device = open_device(find_adapter(adapter))
    return [_accuracy(use, parameters, device, seed) for use in scan.uses]


def _accuracy(use: NormUse, parameters: Mapping[str, Array], device: Device, seed: int) -> NormAccuracy:
    try:
        task = _small(norm_task(use))
        found = [_of_node(task, one, parameters, device, seed) for one in _distinct(use.parameters)]
    except WebnormError as error:
        return NormAccuracy(reason=str(error))
    halves = [half for _, half, _ in found if half is not None]
    return NormAccuracy(
        error=max(error for error, _, _ in found),
        float16_error=max(half.error for half in halves) if halves else None,
        wrong={
            one.node: half.reason
            for one, (_, half, _) in zip(_distinct(use.parameters), found, strict=True)
            if half is not None and half.reason
        },
        known=sum(known for _, _, known in found) if use.parameters or not _has_weights(task) else 0,
    )


def _has_weights(task: Task) -> bool:
    return any(one.name.startswith("weight") for one in task.op.inputs(task.problem))


def _distinct(given: Sequence[NormParameters]) -> Sequence[NormParameters]:
    """Return the parameters of each node; an empty entry for a norm without any."""
    from webnorm.models.norm_use import NormParameters

    return given or [NormParameters("")]


def _small(task: Task) -> Task:
    from webnorm.op.model_cases import limited

    return replace(task, problem=limited(task, _MOST_ELEMENTS))


def _of_node(
    task: Task, own: NormParameters, parameters: Mapping[str, Array], device: Device, seed: int
) -> tuple[float, Float16Result | None, bool]:
    """Return the kernel's error, the result of float16 arithmetic, and whether the weights are known."""
    import numpy as np

    from webnorm.calls.call import compute

    task = replace(task, problem=replace(task.problem, seed=seed, distribution="normal"))
    known = {tensor: parameters[name] for tensor, name in own.tensors if name in parameters}
    given = {tensor: values for tensor, values in known.items() if values.size}
    arrays = dict(_drawn(task, given))
    outputs = compute(task, arrays, device=device, kernel=None, keep=False)
    expected = task.op.reference({**arrays}, task.problem)
    error = 0.0
    for name, answer in expected.items():
        got = np.asarray(outputs[name]).astype(np.float64).reshape(answer.value.shape)
        scaled = np.abs(got - answer.value) / np.maximum(1.0, np.abs(answer.value))
        error = max(error, float(scaled.max(initial=0.0)))
    return error, _in_float16(task, arrays, expected), len(given) == len(own.tensors)


def _drawn(task: Task, given: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Yield the inputs of a norm: the given parameters, and draws with outliers where weights are small."""
    from webnorm.op.dtypes import DTYPES
    from webnorm.op.op import make_inputs

    drawn = make_inputs(task.op, task.problem)
    for at, (name, array) in enumerate(drawn.items()):
        if name in given and array.size % given[name].size == 0:
            repeated = given[name].reshape(-1)
            wide = repeated if repeated.size == array.size else _tiled(repeated, array.size)
            yield name, wide.reshape(array.shape).astype(array.dtype)
        elif at == 0 or name == "k":
            weight = given.get("weight_k" if name == "k" else "weight", given.get("weight_q"))
            factors = _factors(task, weight)
            yield name, (array.astype("float64") * factors(array)).astype(DTYPES[task.problem.dtype])
        else:
            yield name, array


def _tiled(values: Array, size: int) -> Array:
    import numpy as np

    return np.tile(values, size // values.size)


def _factors(task: Task, weight: Array | None) -> Any:
    """Return a function from an input to the factors of its elements."""
    import numpy as np

    if weight is None:
        return lambda array: 1.0
    size = np.abs(weight)
    median = float(np.median(size))
    with np.errstate(divide="ignore"):
        ratio = np.minimum(median / size, _MOST_FACTOR)
    factors = np.where(ratio >= _SMALL, ratio, 1.0) if median > 0 else np.ones_like(size)

    def per_element(array: Array) -> Array:
        if task.op.name == "group_norm":
            # x is (batch, channels * spatial), with the channels first or last.
            spatial = array.shape[-1] // factors.size
            last = task.problem.options.layout == "channels_last"
            return np.tile(factors, spatial) if last else np.repeat(factors, spatial)
        return np.tile(factors, array.shape[-1] // factors.size)

    return per_element


def _in_float16(task: Task, arrays: Mapping[str, Array], expected: ExpectedOutputs) -> Float16Result | None:
    """Return the worse result of float16 arithmetic on the rows that a norm normalizes; None without rows."""
    from webnorm.lab.verify.float16_arithmetic import normalized_in_float16

    name, problem = task.op.name, task.problem
    if name in _WITHOUT_ROWS:
        return None
    has_mean = name in ("layer_norm", "group_norm") or getattr(problem.options, "norm", "") == "layer_norm"
    eps = problem.scalars.get("eps", 0.0)
    found = [
        normalized_in_float16(_rows(task, x), eps, has_mean) for x in _normalized(task, arrays, expected)
    ]
    return max(found, key=lambda one: (bool(one.reason), one.error))


def _normalized(task: Task, arrays: Mapping[str, Array], expected: ExpectedOutputs) -> Iterator[Array]:
    """Yield the arrays whose rows a norm normalizes, in float64."""
    import numpy as np

    if "h" in expected:
        # The sum of x and the residual.
        yield expected["h"].value
    elif task.op.name == "qk_norm":
        yield from (arrays[name].astype("float64") for name in ("q", "k") if name in arrays)
    elif getattr(task.problem.options, "order", "") == "gate_first":
        gate = arrays["z"].astype("float64")
        silu = gate if task.problem.options.activation == "silu" else 1.0
        yield arrays["x"].astype("float64") * silu / (1.0 + np.exp(-gate))
    else:
        yield next(iter(arrays.values())).astype("float64")


def _rows(task: Task, x: Array) -> Array:
    """Return the elements that are normalized together, as rows."""
    problem = task.problem
    if task.op.name == "group_norm":
        if problem.options.layout == "channels_last":
            x = x.reshape(problem.batch, problem.spatial, problem.channels).swapaxes(1, 2)
        return x.reshape(problem.batch * problem.groups, -1)
    return x.reshape(-1, problem.sizes.get("cols", problem.sizes.get("dim", x.shape[-1])))
