"""Values of small constants that a graph computes from shapes, as torch's older exporter writes them.

The onnx library's shape inference knows a few of these ops; without the others most shapes stay unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]
_Compute = Callable[..., _Array]
# Shapes have few elements; a mask that a graph computes from them may have many.
_MOST_VALUES = 4096
# TensorProto's INT32, INT64 and BOOL.
_WHOLE = (6, 7, 9)


def computed_constants(model: Any, onnx: Any) -> int:
    """Replace nodes with known values by constants, and return their number.

    The model has inferred shapes.
    """
    graph = model.graph
    known = {
        one.name: _array(onnx, one) for one in graph.initializer if _is_small(one) and not _is_weight(one)
    }
    shapes = {one.name: _shape(one) for one in (*graph.value_info, *graph.input, *graph.output)}
    shapes |= {one.name: tuple(one.dims) for one in graph.initializer}
    replaced = 0
    for node in graph.node:
        if len(node.output) != 1:
            continue
        value = _value(onnx, node, known, shapes)
        if value is None or value.size > _MOST_VALUES:
            continue
        known[node.output[0]] = value
        if node.op_type != "Constant":
            _set_constant(onnx, node, value)
            replaced += 1
    return replaced


def _is_small(tensor: Any) -> bool:
    count = 1
    for size in tensor.dims:
        count *= size
    return 0 <= count <= _MOST_VALUES and not tensor.external_data


def _is_weight(tensor: Any) -> bool:
    """Return whether a tensor is a list of real numbers: patterns read how a graph changes weights."""
    return tensor.data_type not in _WHOLE and [*tensor.dims] not in ([], [1])


def _array(onnx: Any, tensor: Any) -> _Array | None:
    try:
        found: _Array = onnx.numpy_helper.to_array(tensor)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return found


def _shape(info: Any) -> tuple[int, ...] | None:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape") or any(not one.HasField("dim_value") for one in tensor.shape.dim):
        return None
    return tuple(one.dim_value for one in tensor.shape.dim)


def _set_constant(onnx: Any, node: Any, value: _Array) -> None:
    del node.input[:]
    del node.attribute[:]
    node.op_type, node.domain = "Constant", ""
    node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(value)))


def _value(
    onnx: Any,
    node: Any,
    known: Mapping[str, _Array | None],
    shapes: Mapping[str, tuple[int, ...] | None],
) -> _Array | None:
    """Return the value of a node, or None if it is unknown, or of an op that is not listed here."""
    if node.domain not in ("", "ai.onnx"):
        return None
    attributes = {
        one.name: onnx.helper.get_attribute_value(one) for one in node.attribute if not one.ref_attr_name
    }
    try:
        if node.op_type == "Shape":
            shape = shapes.get(node.input[0])
            return None if shape is None else _shape_value(shape, attributes)
        if node.op_type == "Constant":
            return _constant(onnx, attributes)
        compute = _OPS.get(node.op_type)
        if compute is None:
            return None
        inputs = [known.get(name) for name in node.input]
        if any(one is None and name for name, one in zip(node.input, inputs, strict=True)):
            return None
        with np.errstate(all="ignore"):
            return np.asarray(compute(attributes, *inputs))
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def _shape_value(shape: tuple[int, ...], attributes: Mapping[str, Any]) -> _Array:
    return np.array(shape[attributes.get("start", 0) : attributes.get("end")], np.int64)


def _constant(onnx: Any, attributes: Mapping[str, Any]) -> _Array | None:
    if "value" in attributes:
        return _array(onnx, attributes["value"]) if _is_small(attributes["value"]) else None
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64), ("value_float", np.float32)):
        if name in attributes:
            return np.array(attributes[name], dtype)
    return None


# --- the ops; each function has the node's attributes and its inputs as arguments


def _axes(attributes: Mapping[str, Any], given: _Array | None) -> tuple[int, ...] | None:
    found = attributes.get("axes") if given is None else given.tolist()
    return None if found is None else tuple(found)


def _unsqueeze(attributes: Mapping[str, Any], x: _Array, axes: _Array | None = None) -> _Array:
    return np.expand_dims(x, _axes(attributes, axes) or ())


def _squeeze(attributes: Mapping[str, Any], x: _Array, axes: _Array | None = None) -> _Array:
    return np.squeeze(x, _axes(attributes, axes))


def _slice(
    attributes: Mapping[str, Any],
    x: _Array,
    starts: _Array | None = None,
    ends: _Array | None = None,
    axes: _Array | None = None,
    steps: _Array | None = None,
) -> _Array:
    first = attributes["starts"] if starts is None else starts.tolist()
    last = attributes["ends"] if ends is None else ends.tolist()
    places = _axes(attributes, axes) or tuple(range(len(first)))
    every = [1] * len(first) if steps is None else steps.tolist()
    cut = [slice(None)] * x.ndim
    for place, start, end, step in zip(places, first, last, every, strict=True):
        cut[place] = slice(start, None if step < 0 and end < -x.shape[place] else end, step)
    return x[tuple(cut)]


def _cast(attributes: Mapping[str, Any], x: _Array) -> _Array:
    kinds: Mapping[int, type[np.generic]] = {
        1: np.float32,
        6: np.int32,
        7: np.int64,
        9: np.bool_,
        10: np.float16,
        11: np.float64,
    }
    return x.astype(kinds[attributes["to"]])


def _filled(attributes: Mapping[str, Any], shape: _Array) -> _Array:
    from onnx import numpy_helper

    _check_size(shape)
    value = (
        numpy_helper.to_array(attributes["value"]).ravel()[:1] if "value" in attributes else np.zeros(1, "f4")
    )
    return np.full(tuple(shape.tolist()), value[0], value.dtype)


def _check_size(shape: _Array) -> None:
    if np.prod(shape.astype(float)) > _MOST_VALUES:
        raise ValueError("the value has too many elements")


def _expand(_: Mapping[str, Any], x: _Array, shape: _Array) -> _Array:
    _check_size(np.maximum(shape, 1))
    return x * np.ones(tuple(shape.tolist()), x.dtype)


def _reshape(_: Mapping[str, Any], x: _Array, shape: _Array) -> _Array:
    sizes = [x.shape[at] if size == 0 else size for at, size in enumerate(shape.tolist())]
    return x.reshape(sizes)


def _range(_: Mapping[str, Any], start: _Array, limit: _Array, step: _Array) -> _Array:
    count = math.ceil((limit.item() - start.item()) / step.item())
    if count > _MOST_VALUES:
        raise ValueError("the range has too many elements")
    return np.asarray(start.item() + step.item() * np.arange(count)).astype(start.dtype)


def _divide(_: Mapping[str, Any], x: _Array, y: _Array) -> _Array:
    # ONNX truncates quotients of integers.
    return np.asarray(np.trunc(x / y)).astype(x.dtype) if x.dtype.kind in "iu" else x / y


def _reduced_product(attributes: Mapping[str, Any], x: _Array, axes: _Array | None = None) -> _Array:
    keep = bool(attributes.get("keepdims", 1))
    return np.asarray(np.prod(x, axis=_axes(attributes, axes), keepdims=keep, dtype=x.dtype))


_OPS: Mapping[str, _Compute] = {
    "Identity": lambda _, x: x,
    "Gather": lambda attributes, x, at: np.take(x, at, axis=attributes.get("axis", 0)),
    "Concat": lambda attributes, *parts: np.concatenate(parts, attributes["axis"]),
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Cast": _cast,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Reshape": _reshape,
    "Transpose": lambda attributes, x: np.transpose(x, attributes.get("perm")),
    "Range": _range,
    "ReduceProd": _reduced_product,
    "Add": lambda _, x, y: x + y,
    "Sub": lambda _, x, y: x - y,
    "Mul": lambda _, x, y: x * y,
    "Div": _divide,
    "Mod": lambda _, x, y: x % y,
    "Sqrt": lambda _, x: np.sqrt(x),
    "Floor": lambda _, x: np.floor(x),
    "Ceil": lambda _, x: np.ceil(x),
    "Neg": lambda _, x: -x,
    "Equal": lambda _, x, y: x == y,
    "Greater": lambda _, x, y: x > y,
    "Less": lambda _, x, y: x < y,
    "Not": lambda _, x: ~x,
    "And": lambda _, x, y: x & y,
    "Where": lambda _, where, x, y: np.asarray(np.where(where, x, y)),
    "Min": lambda _, *parts: np.asarray(reduce(np.minimum, parts)),
    "Max": lambda _, *parts: np.asarray(reduce(np.maximum, parts)),
}
