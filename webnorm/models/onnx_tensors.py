"""Conversions of the onnx library's messages into the graph that the patterns read."""

from __future__ import annotations

import math
from typing import Any

from webnorm.models.onnx_graph import ELEMENT_TYPES, MOST_VALUES, OnnxGraph, OnnxNode, ValueType

# The kinds of attributes: AttributeProto.FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, GRAPHS.
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _GRAPHS = 1, 2, 3, 4, 5, 6, 7, 10
_EXTERNAL = 1


def elements(tensor: Any) -> tuple[float, ...] | None:
    """Return the elements of a small tensor; None if it is large, or its data are elsewhere or invalid."""
    from onnx import numpy_helper

    dims = [*tensor.dims]
    if any(size < 0 for size in dims) or math.prod(dims) > MOST_VALUES or tensor.data_location == _EXTERNAL:
        return None
    if tensor.data_type not in ELEMENT_TYPES:
        return None
    try:
        return tuple(float(one) for one in numpy_helper.to_array(tensor).ravel())
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None


def graph_of(proto: Any, outer: OnnxGraph | None = None) -> OnnxGraph:
    """Return a graph with its subgraphs."""
    graph = OnnxGraph(outer=outer, outputs=frozenset(one.name for one in proto.output))
    for one in (*proto.input, *proto.value_info, *proto.output):
        graph.types[one.name] = _value_type(one.type)
    for tensor in proto.initializer:
        _add_tensor(graph, tensor.name, tensor)
    for index, proto_node in enumerate(proto.node):
        graph.nodes.append(_node(graph, proto_node, index))
    graph.link()
    for proto_node in proto.node:
        for attribute in proto_node.attribute:
            inner = [attribute.g] if attribute.type == _GRAPH else [*attribute.graphs]
            graph.subgraphs += [graph_of(one, graph) for one in inner]
    return graph


def _add_tensor(graph: OnnxGraph, name: str, tensor: Any) -> None:
    graph.tensors[name] = tensor
    graph.types[name] = ValueType(ELEMENT_TYPES.get(tensor.data_type, ""), tuple(tensor.dims))


def _node(graph: OnnxGraph, proto: Any, index: int) -> OnnxNode:
    attributes: dict[str, Any] = {}
    for one in proto.attribute:
        if one.type == _FLOAT:
            attributes[one.name] = one.f
        elif one.type == _INT:
            attributes[one.name] = one.i
        elif one.type == _STRING:
            attributes[one.name] = one.s.decode("utf-8", "replace")
        elif one.type == _FLOATS:
            attributes[one.name] = tuple(one.floats)
        elif one.type == _INTS:
            attributes[one.name] = tuple(one.ints)
        elif one.type == _TENSOR and proto.op_type == "Constant" and proto.output:
            _add_tensor(graph, proto.output[0], one.t)
    name = proto.name or f"{proto.op_type}_{index}"
    return OnnxNode(name, proto.op_type, tuple(proto.input), tuple(proto.output), attributes)


def _value_type(proto: Any) -> ValueType:
    tensor = proto.tensor_type
    dtype = ELEMENT_TYPES.get(tensor.elem_type, "")
    if not tensor.HasField("shape"):
        return ValueType(dtype)
    dims = (
        one.dim_value if one.HasField("dim_value") and one.dim_value >= 0 else None
        for one in tensor.shape.dim
    )
    return ValueType(dtype, tuple(dims))
