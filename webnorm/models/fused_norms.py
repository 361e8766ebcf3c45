"""Norms that are one node of a graph: ONNX's own ops, and onnxruntime's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from webnorm.models.norm_match import NormMatch, without_ones
from webnorm.models.onnx_graph import OnnxGraph, OnnxNode

# ONNX's MeanVarianceNormalization adds this number to the standard deviation instead of the variance.
_MVN_EPS = 1e-9
_ONNX_EPS, _SKIP_EPS = 1e-5, 1e-12


def fused_norms(graph: OnnxGraph) -> Iterator[NormMatch]:
    """Yield the nodes of a graph that are norms."""
    for node in graph.nodes:
        build = _BUILDERS.get(node.op)
        if build is not None and node.output(0):
            found = build(graph, node)
            if found is not None:
                yield found


def _begun(graph: OnnxGraph, op: str, node: OnnxNode, eps: float | None) -> NormMatch:
    x = node.input(0)
    shape = graph.type_of(x).known_shape or graph.type_of(node.output(0)).known_shape
    return NormMatch(graph, op, node, x, node.output(0), "fused", shape, (), eps)


def _trailing(found: NormMatch, axis: int) -> None:
    """Set the normalized axes: from `axis` to the last."""
    if found.shape is not None:
        rank = len(found.shape)
        first = axis + rank if axis < 0 else axis
        found.axes = tuple(range(max(0, min(first, rank - 1)), rank))


def _row_norm(op: str) -> Callable[[OnnxGraph, OnnxNode], NormMatch]:
    def build(graph: OnnxGraph, node: OnnxNode) -> NormMatch:
        found = _begun(graph, op, node, node.attributes.get("epsilon", _ONNX_EPS))
        found.weight = without_ones(graph, node.input(1), 1)
        found.bias = without_ones(graph, node.input(2), 0)
        _trailing(found, node.attributes.get("axis", -1))
        if any(graph.readers_of(name) or name in graph.outputs for name in node.outputs[1:3] if name):
            found.options.append("return_stats")
        return found

    return build


def _skip_norm(op: str) -> Callable[[OnnxGraph, OnnxNode], NormMatch]:
    def build(graph: OnnxGraph, node: OnnxNode) -> NormMatch:
        found = _begun(graph, op, node, node.attributes.get("epsilon", _SKIP_EPS))
        found.weight = node.input(2)
        found.bias = node.input(3) if op == "layer_norm" else ""
        added = node.input(4 if op == "layer_norm" else 3)
        found.options += ["residual", *(["residual_bias"] if added else [])]
        _trailing(found, -1)
        return found

    return build


def _embedding_norm(graph: OnnxGraph, node: OnnxNode) -> NormMatch:
    """Match onnxruntime's sum of embeddings with a LayerNorm; the rows are the tokens."""
    found = _begun(graph, "layer_norm", node, node.attributes.get("epsilon", _SKIP_EPS))
    found.weight, found.bias = node.input(5), node.input(6)
    found.x = node.output(0)
    tokens, cols = graph.type_of(node.input(0)).known_shape, graph.type_of(found.weight).elements
    found.shape = (*tokens, cols) if tokens is not None and cols is not None else None
    _trailing(found, -1)
    found.notes.append("the node also sums embeddings")
    return found


def _group_norm(graph: OnnxGraph, node: OnnxNode) -> NormMatch:
    """Match ONNX's GroupNormalization and onnxruntime's GroupNorm and SkipGroupNorm."""
    found = _begun(graph, "group_norm", node, node.attributes.get("epsilon", _ONNX_EPS))
    found.weight = without_ones(graph, node.input(1), 1)
    found.bias = without_ones(graph, node.input(2), 0)
    own = node.op == "GroupNormalization"
    found.groups = int(node.attributes.get("num_groups" if own else "groups", 0))
    last = not own and bool(node.attributes.get("channels_last", 1))
    set_channels(found, last)
    if not own and node.attributes.get("activation"):
        found.options.append("activation=silu")
    if node.op == "SkipGroupNorm":
        found.options.append("residual")
        if node.input(4):
            found.notes.append("the node also adds a bias per channel")
    if own and found.groups and graph.type_of(found.weight).elements == found.groups:
        channels = found.sizes.get("channels", found.groups)
        if channels != found.groups:
            found.notes.append("weight and bias have one element per group")
    return found


def set_channels(found: NormMatch, channels_last: bool = False) -> None:
    """Set the sizes of a group norm from the shape of x; the channels are axis 1 or the last."""
    if found.shape is None or len(found.shape) < 2:
        return
    batch, *inner = found.shape
    channels = inner.pop() if channels_last else inner.pop(0)
    groups = found.groups or channels
    found.sizes = {"batch": batch, "channels": channels, "spatial": math.prod(inner), "groups": groups}
    if channels_last:
        found.options.append("layout=channels_last")


def _instance_norm(graph: OnnxGraph, node: OnnxNode) -> NormMatch:
    found = _begun(graph, "group_norm", node, node.attributes.get("epsilon", _ONNX_EPS))
    found.weight = without_ones(graph, node.input(1), 1)
    found.bias = without_ones(graph, node.input(2), 0)
    set_channels(found)
    return found


def _mean_variance(graph: OnnxGraph, node: OnnxNode) -> NormMatch | None:
    """Match MeanVarianceNormalization: means of channels over the batch and space, or of each row."""
    found = _begun(graph, "group_norm", node, _MVN_EPS**2)
    axes = node.attributes.get("axes", (0, 2, 3))
    if found.shape is None:
        return found
    rank = len(found.shape)
    kept = [axis for axis in range(rank) if axis not in {one + rank * (one < 0) for one in axes}]
    if kept == [1] and rank > 2:
        batch, channels, *space = found.shape
        each = math.prod(space)
        found.sizes = {"batch": 1, "channels": channels * each, "spatial": batch, "groups": channels}
        found.options.append("layout=channels_last")
    elif kept == [0, 1] and rank > 2:
        set_channels(found)
    elif kept == [*range(len(kept))] and len(kept) < rank:
        found.op = "layer_norm"
        _trailing(found, len(kept))
    else:
        found.notes.append(f"means over the axes {', '.join(map(str, axes))} have no op")
    return found


def _lp_norm(graph: OnnxGraph, node: OnnxNode) -> NormMatch | None:
    """Match LpNormalization of order 1 or 2."""
    found = _begun(graph, "l2_norm", node, None)
    found.options.append("eps_mode=none")
    order = node.attributes.get("p", 2)
    if order != 2:
        found.options.append(f"p={order}")
    if found.shape is not None:
        found.axes = (node.attributes.get("axis", -1) % len(found.shape),)
    return found


def _softmax(graph: OnnxGraph, node: OnnxNode) -> NormMatch:
    found = _begun(graph, "softmax", node, None)
    if found.shape:
        found.axes = (node.attributes.get("axis", -1) % len(found.shape),)
    return found


_BUILDERS: Mapping[str, Callable[[OnnxGraph, OnnxNode], NormMatch | None]] = {
    "LayerNormalization": _row_norm("layer_norm"),
    "RMSNormalization": _row_norm("rms_norm"),
    "SimplifiedLayerNormalization": _row_norm("rms_norm"),
    "SkipLayerNormalization": _skip_norm("layer_norm"),
    "SkipSimplifiedLayerNormalization": _skip_norm("rms_norm"),
    "EmbedLayerNormalization": _embedding_norm,
    "GroupNormalization": _group_norm,
    "GroupNorm": _group_norm,
    "SkipGroupNorm": _group_norm,
    "InstanceNormalization": _instance_norm,
    "MeanVarianceNormalization": _mean_variance,
    "LpNormalization": _lp_norm,
    "Softmax": _softmax,
}
