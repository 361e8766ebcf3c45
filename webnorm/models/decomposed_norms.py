"""Norms that a graph computes in several nodes: means, squares, a root and a division."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from webnorm.models.norm_match import NormMatch, normal_axes, square_of
from webnorm.models.onnx_graph import OnnxGraph, OnnxNode


@dataclass(frozen=True)
class _Reduction:
    """A mean or a sum over axes."""

    kind: str
    value: str
    axes: tuple[int, ...] | None


def decomposed_norms(graph: OnnxGraph) -> Iterator[NormMatch]:
    """Yield the norms of a graph that end in a node of their own."""
    for node in graph.nodes:
        found = None
        if node.op == "Div":
            found = _divided(graph, node) or _softmax(graph, node)
        elif node.op == "Mul":
            found = _multiplied(graph, node)
        if found is not None:
            yield found


def reduction(graph: OnnxGraph, value: str, views: bool = False) -> _Reduction | None:
    """Return the mean or the sum that made a value, or None."""
    names = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL1", "ReduceL2", "ReduceSumSquare", "Div", "Mul")
    node = graph.made_by(value, *names, views=views)
    if node is None:
        return None
    if node.op in ("Div", "Mul"):
        return _sum_over_count(graph, node)
    axes = node.attributes.get("axes") or (graph.constant(node.input(1)) if node.input(1) else None)
    rank = len(graph.type_of(node.input(0)).shape or ())
    known = normal_axes(axes, rank) if rank else None
    if axes is None and rank and not node.attributes.get("noop_with_empty_axes"):
        known = tuple(range(rank))
    if known is None and axes is not None and not rank and [*axes] == [-1]:
        known = (-1,)
    return _Reduction(node.op.removeprefix("Reduce").lower(), node.input(0), known)


def _sum_over_count(graph: OnnxGraph, node: OnnxNode) -> _Reduction | None:
    """Return a sum that is divided by the number of its elements, as a mean."""
    factor = graph.scalar(node.input(1))
    summed = graph.made_by(node.input(0), "ReduceSum", "ReduceSumSquare")
    if summed is None or not factor:
        return None
    found = reduction(graph, node.input(0))
    shape = graph.type_of(found.value).known_shape if found is not None else None
    if found is None or found.axes is None or shape is None:
        return None
    count = math.prod(shape[axis] for axis in found.axes)
    divisor = factor if node.op == "Div" else 1 / factor
    if not math.isclose(divisor, count, rel_tol=1e-5):
        return None
    kind = "mean" if found.kind == "sum" else "meansquare"
    return _Reduction(kind, found.value, found.axes)


def _divided(graph: OnnxGraph, node: OnnxNode) -> NormMatch | None:
    """Match numerator / sqrt(statistic + eps), and numerator / max(norm, eps)."""
    below = node.input(1)
    root = graph.made_by(below, "Sqrt", "Pow", views=True)
    if root is not None and (root.op == "Sqrt" or graph.scalar(root.input(1)) == 0.5):
        found = _normalized(graph, node, node.input(0), root.input(0))
        if found is not None:
            return found
    return _over_l2(graph, node, node.input(0), below)


def _multiplied(graph: OnnxGraph, node: OnnxNode) -> NormMatch | None:
    """Match numerator * 1 / sqrt(statistic + eps)."""
    for numerator, factor in (node.inputs[:2], node.inputs[1::-1]):
        inside = _inside_rsqrt(graph, factor)
        if inside:
            found = _normalized(graph, node, numerator, inside)
            if found is not None:
                return found
    return None


def _inside_rsqrt(graph: OnnxGraph, value: str) -> str:
    """Return v if a value is 1 / sqrt(v), else ""."""
    node = graph.made_by(value, "Reciprocal", "Div", "Pow", "Rsqrt", views=True)
    if node is None:
        return ""
    if node.op == "Rsqrt":
        return node.input(0)
    if node.op == "Pow":
        return node.input(0) if graph.scalar(node.input(1)) == -0.5 else ""
    if node.op == "Div" and graph.scalar(node.input(0)) != 1:
        return ""
    root = graph.made_by(node.input(0 if node.op == "Reciprocal" else 1), "Sqrt", "Pow")
    if root is None or (root.op == "Pow" and graph.scalar(root.input(1)) != 0.5):
        return ""
    return root.input(0)


def _with_eps(graph: OnnxGraph, value: str) -> tuple[str, float]:
    """Return v and eps if a value is v + eps or max(v, eps); else the value and 0."""
    node = graph.made_by(value, "Add", "Max", "Clip")
    if node is not None:
        for one, other in (node.inputs[:2], node.inputs[1::-1]):
            eps = graph.scalar(other)
            if eps is not None and eps >= 0:
                return one, eps
    return value, 0.0


def _normalized(graph: OnnxGraph, node: OnnxNode, numerator: str, radicand: str) -> NormMatch | None:
    """Return the norm of a numerator that is divided by the root of a radicand, or None."""
    statistic, eps = _with_eps(graph, radicand)
    found = reduction(graph, statistic)
    if found is None:
        return _fast_variance(graph, node, numerator, statistic, eps)
    squared = found.value if found.kind in ("sumsquare", "meansquare") else square_of(graph, found.value)
    if found.kind not in ("mean", "meansquare", "sum", "sumsquare") or not squared or found.axes is None:
        return None
    own, top = graph.source(squared), graph.source(numerator)
    if found.kind in ("sum", "sumsquare"):
        return _l2_norm(graph, node, own, found.axes, eps) if own == top else None
    centred = _centred(graph, own, found.axes)
    if centred:
        if own != top and _centred(graph, top, found.axes) != centred:
            return None
        return _match(graph, "layer_norm", node, centred, found.axes, eps)
    return _match(graph, "rms_norm", node, squared, found.axes, eps) if own == top else None


def _centred(graph: OnnxGraph, value: str, axes: tuple[int, ...]) -> str:
    """Return x if a value is x - mean(x) over these axes, else ""."""
    node = graph.made_by(value, "Sub")
    if node is None:
        return ""
    mean = reduction(graph, node.input(1), views=True)
    if mean is None or mean.kind != "mean" or mean.axes != axes:
        return ""
    return node.input(0) if graph.source(mean.value) == graph.source(node.input(0)) else ""


def _fast_variance(
    graph: OnnxGraph, node: OnnxNode, numerator: str, statistic: str, eps: float
) -> NormMatch | None:
    """Match the variance mean(x^2) - mean(x)^2, as JAX computes it."""
    clamped = graph.made_by(statistic, "Max", "Relu", "Clip")
    inner = statistic if clamped is None else clamped.input(0)
    if clamped is not None and clamped.op == "Max" and graph.scalar(clamped.input(0)) is not None:
        inner = clamped.input(1)
    node_of_variance = graph.made_by(inner, "Sub")
    if node_of_variance is None:
        return None
    squares = reduction(graph, node_of_variance.input(0))
    mean = square_of(graph, node_of_variance.input(1))
    means = reduction(graph, mean) if mean else None
    if squares is None or means is None or squares.axes is None or {squares.kind, means.kind} != {"mean"}:
        return None
    x = square_of(graph, squares.value)
    centred = _centred(graph, graph.source(numerator), squares.axes)
    if not x or not centred or len({graph.source(one) for one in (x, means.value, centred)}) != 1:
        return None
    found = _match(graph, "layer_norm", node, centred, squares.axes, eps)
    found.notes.append("the model computes the variance as mean(x²) - mean(x)²")
    return found


def _over_l2(graph: OnnxGraph, node: OnnxNode, numerator: str, below: str) -> NormMatch | None:
    """Match x / max(norm, eps), x / (norm + eps) and x / norm."""
    length, eps = _with_eps(graph, graph.source(below, views=True))
    found = reduction(graph, length, views=True)
    if found is None or found.kind not in ("l1", "l2") or found.axes is None:
        root = graph.made_by(length, "Sqrt", views=True)
        found = reduction(graph, root.input(0)) if root is not None else None
        squared = "" if found is None else _summed_squares(graph, found)
    else:
        squared = found.value
    if found is None or found.axes is None or not squared:
        return None
    if graph.source(squared) != graph.source(numerator):
        return None
    match = _match(graph, "l2_norm", node, squared, found.axes, eps or None)
    is_sum = graph.made_by(below, "Add", views=True) is not None
    if found.kind == "l1":
        match.options.append("p=1")
    if not eps:
        match.options.append("eps_mode=none")
    elif is_sum and found.kind == "l1":
        match.options.append("eps_mode=add")
    elif is_sum:
        match.notes.append(f"the model adds {eps:g} to the norm instead")
    return match


def _l2_norm(graph: OnnxGraph, node: OnnxNode, x: str, axes: tuple[int, ...], eps: float) -> NormMatch:
    """Return x / sqrt(sum of squares + eps)."""
    found = _match(graph, "l2_norm", node, x, axes, eps or None)
    found.options.append("eps_mode=add" if eps else "eps_mode=none")
    return found


def _summed_squares(graph: OnnxGraph, found: _Reduction) -> str:
    if found.kind == "sumsquare":
        return found.value
    return square_of(graph, found.value) if found.kind == "sum" else ""


def _softmax(graph: OnnxGraph, node: OnnxNode) -> NormMatch | None:
    """Match exp(x - max(x)) / sum(exp(x - max(x)))."""
    power = graph.made_by(node.input(0), "Exp")
    total = reduction(graph, node.input(1), views=True)
    if power is None or total is None or total.kind != "sum" or total.axes is None:
        return None
    if graph.source(total.value) != graph.source(node.input(0)):
        return None
    lowered = graph.made_by(power.input(0), "Sub")
    most = reduction(graph, lowered.input(1), views=True) if lowered is not None else None
    if lowered is None or most is None or most.kind != "max" or most.axes != total.axes:
        return None
    if graph.source(most.value) != graph.source(lowered.input(0)):
        return None
    return _match(graph, "softmax", node, lowered.input(0), total.axes, None)


def _match(
    graph: OnnxGraph, op: str, node: OnnxNode, x: str, axes: tuple[int, ...], eps: float | None
) -> NormMatch:
    shape = graph.type_of(x).known_shape
    if shape is not None:
        axes = normal_axes(axes, len(shape)) or axes
    return NormMatch(graph, op, node, x, node.output(0), "decomposed", shape, axes, eps)
