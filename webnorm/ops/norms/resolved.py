"""From what a public function is given to what it computes: the arrays, the problem, and the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from operator import itemgetter
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from webnorm import signals
from webnorm.calls.arrays import GpuArray, check_device, ints
from webnorm.calls.call import AnyArray, compute
from webnorm.op.dtypes import DTYPE_NAMES
from webnorm.op.op import Op, Task, Tensor
from webnorm.ops.copy.problem import EPS, SCALE
from webnorm.ops.norms import arguments
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import NormOptions

# The arguments of a public function by name. Those of the names of an op's inputs are its arrays, and an
# option that no array brings has an argument of its own: its name, or NAME_grad where it asks for a gradient.
Given = Mapping[str, Any]


class ResolvedCall(NamedTuple):
    """What arguments come to: the task, the names of the arrays, and the shapes of the outputs by name."""

    task: Task
    arrays: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]


# What was asked before, by all that its checks look at. Kept up to a number, and then begun anew: several
# threads may be here at once.
_known: dict[tuple[Hashable, ...], ResolvedCall] = {}
MOST_KNOWN = 1024
# What a key may hold on to: an array, which NumPy takes for a dtype too, would never be let go.
_PLAIN = (str, int, float, NoneType, tuple, type, np.dtype, np.generic)


@signals.holding
def computed(op: Op, given: Given) -> dict[str, Any]:
    """Every output of an op by name, in the shape that x's dimensions give it.

    Raises WebnormError for arguments that do not go together or that the op does not take, and as `compute`
    does.
    """
    try:
        key = _key(op, given)
        asked = _known.get(key)
    except Exception as error:  # of what is no array, or has no hash: the error below says what is wrong
        signals.let_through(error)
        key, asked = (), None
    if asked is None:
        asked = checked(op, given)
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        if key and all(isinstance(part, _PLAIN) for part in key):
            _known[key] = asked
    device = given["device"]
    check_device(device)
    arrays = {name: given[name] for name in asked.arrays}
    keep = isinstance(given["x"], GpuArray)
    return compute(asked.task, arrays, device=device, kernel=given["kernel"], keep=keep, shapes=asked.shapes)


_Getter = Callable[[Given], tuple[Any, ...]]
# By op what takes the arrays from the arguments of its function, and what takes the others that are checked.
_getters: dict[str, tuple[_Getter, _Getter]] = {}


def _key(op: Op, given: Given) -> tuple[Hashable, ...]:
    """All that the checks of arguments look at, and no array."""
    arrays, others = _getters.get(op.name) or _getters.setdefault(op.name, _getters_of(op, given))
    of_arrays = [None if one is None else (type(one), one.shape, one.dtype) for one in arrays(given)]
    rest = others(given)
    # 1, 1.0 and True are equal, and are not taken for each other.
    return op.name, ints(given["normalized_shape"]), *of_arrays, *rest, *map(type, rest)


def _getters_of(op: Op, given: Given) -> tuple[_Getter, _Getter]:
    arrays = [name for name in given if name in op.named]
    others = [name for name in given if name not in (*arrays, "normalized_shape", "kernel", "device")]
    return itemgetter(*arrays), itemgetter(*others)


def checked(op: Op, given: Given) -> ResolvedCall:
    """What arguments come to, every one of them looked at; of the arrays kind, shape and dtype alone.

    Raises WebnormError for arguments that do not go together or that the op does not take.
    """
    shape, x = arguments.shape_of(given["normalized_shape"]), given["x"]
    leading = arguments.leading_of(x, shape)
    arrays = {"x": x, **_rows(op, given, leading)}
    parameters, weight_dtype = arguments.parameters(
        {name: value for name, value in given.items() if _is_parameter(op, name)}, shape, x
    )
    arrays |= parameters
    eps = _eps(op, given["eps"])
    scale = SCALE.number(given.get("scale", 1.0))
    options = NormOptions(weight_dtype=weight_dtype, **_options(op, given, arrays))
    problem = op.problem(
        math.prod(leading),
        math.prod(shape),
        dtype=DTYPE_NAMES[x.dtype],
        options=options,
        distribution="given",
        eps=eps,
        scale=scale,
    )
    shapes = {tensor.name: _shape(tensor, leading, shape) for tensor in op.outputs(problem)}
    return ResolvedCall(Task(op, problem), tuple(arrays), shapes)


def _is_parameter(op: Op, name: str) -> bool:
    return name in op.named and not op.named[name].batched and op.named[name].access == "read"


def _rows(op: Op, given: Given, leading: tuple[int, ...]) -> dict[str, AnyArray]:
    """The arrays with rows that are given beside x."""
    found = {}
    for tensor in op.tensors:
        if tensor.access == "read" and tensor.batched and tensor.name != "x":
            array = given[tensor.name]
            if array is None and tensor.option is not None:
                continue
            if tensor.wide:
                arguments.check_like_x(tensor.name, array, given["x"])
            else:
                arguments.check_stats(array, leading, *map(int, tensor.inner_shape))
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
    if found.get("out_dtype") == DTYPE_NAMES[arrays["x"].dtype]:
        found["out_dtype"] = None
    return found


def _option(name: str, argument: str, value: Any) -> Any:
    if name == "out_dtype":
        return None if value is None else arguments.dtype_name(value, argument)
    if name == "max_workgroups":
        return arguments.as_count(argument, value)
    return arguments.as_flag(argument, value)


def _eps(op: Op, eps: float | None) -> float | None:
    if eps is None and not has_mean(op):
        return None
    return EPS.number(eps)


def _shape(tensor: Tensor, leading: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    own = shape if tensor.wide else tuple(map(int, tensor.inner_shape))
    return (*leading, *own) if tensor.batched else own
