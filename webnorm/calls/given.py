"""From what a public function is given to what it computes: the arrays, the problem, and the answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from webnorm.calls import arguments
from webnorm.calls.arrays import GpuArray, check_device
from webnorm.calls.call import AnyArray, compute
from webnorm.errors import WebnormError
from webnorm.norms.ops import OPS, Op, Task, Tensor
from webnorm.norms.problem import DTYPE_NAMES, Options

# The arguments of a public function by name. Those of the names of an op's inputs are its arrays, and an
# option that no array brings has an argument of its own: its name, or NAME_grad where it asks for a gradient.
Given = Mapping[str, Any]


def computed(op: Op, given: Given) -> dict[str, Any]:
    """Every output of an op by name, in the shape that x's dimensions give it.

    Raises WebnormError for arguments that do not go together or that the op does not take, and as `compute`
    does.
    """
    shape = arguments.shape_of(given["normalized_shape"])
    x = given["x"]
    leading = arguments.leading_of(x, shape)
    arrays = {"x": x, **_rows(op, given, leading)}
    parameters, weight_dtype = arguments.parameters(
        {name: value for name, value in given.items() if _is_parameter(op, name)}, shape, x
    )
    arrays |= parameters
    task = _task(
        op.name,
        math.prod(leading),
        math.prod(shape),
        DTYPE_NAMES[x.dtype],
        _eps(op, given["eps"]),
        arguments.number("scale", given.get("scale", 1.0), "a finite number above 0"),
        weight_dtype=weight_dtype,
        **_options(op, given, arrays),
    )
    device = given["device"]
    check_device(device)
    keep = isinstance(x, GpuArray)
    found = compute(task, arrays, device=device, kernel=given["kernel"], keep=keep)
    return {name: array.reshape(_shape(op.named[name], leading, shape)) for name, array in found.items()}


def _is_parameter(op: Op, name: str) -> bool:
    return name in op.named and op.named[name].kind == "parameter"


def _rows(op: Op, given: Given, leading: tuple[int, ...]) -> dict[str, AnyArray]:
    """The arrays with rows that are given beside x."""
    found = {}
    for tensor in op.tensors:
        if tensor.access == "read" and tensor.per_row and tensor.name != "x":
            array = given[tensor.name]
            if array is None and tensor.option is not None:
                continue
            if tensor.width is None:
                arguments.like_x(tensor.name, array, given["x"])
            else:
                arguments.check_stats(array, leading, tensor.width)
            found[tensor.name] = array
    return found


def _options(op: Op, given: Given, arrays: Mapping[str, AnyArray]) -> dict[str, Any]:
    """The options that are asked for, by arrays or by arguments of their own; not the parameters' dtype."""
    brought = {tensor.option: tensor.name for tensor in op.tensors if tensor.access == "read"}
    found: dict[str, Any] = {}
    for name in op.options:
        if name in brought:
            found[name] = brought[name] in arrays
        elif name != "weight_dtype":
            argument = name if name in given else f"{name}_grad"
            found[name] = _option(name, argument, given[argument])
    if found["zero_centered_weight"] and not found["weight"]:
        raise WebnormError("zero_centered_weight is True, but there is no weight; expected one to add 1 to")
    if found.get("out_dtype") == DTYPE_NAMES[arrays["x"].dtype]:
        found["out_dtype"] = None
    return found


def _option(name: str, argument: str, value: Any) -> Any:
    if name == "out_dtype":
        return None if value is None else arguments.dtype_name(value, argument)
    if name == "max_workgroups":
        return arguments.count(argument, value)
    return arguments.flag(argument, value)


def _eps(op: Op, eps: float | None) -> float | None:
    if eps is None and not op.has_mean:
        return None
    return arguments.number("eps", eps, "a finite number of 0 or more")


def _shape(tensor: Tensor, leading: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    own = shape if tensor.width is None else (tensor.width,)
    return (*leading, *own) if tensor.per_row else own


@lru_cache(maxsize=256)
def _task(op: str, rows: int, cols: int, dtype: str, eps: float | None, scale: float, **options: Any) -> Task:
    """What a call asks for, checked once for all calls that are alike."""
    asked = Options(**options)
    problem = OPS[op].problem(rows, cols, dtype, eps, asked, distribution="given", scale=scale)
    return Task(OPS[op], problem)
