"""Norms of queries and keys per head: two norms whose results meet in one product of an attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webnorm.models.norm_match import NormMatch
from webnorm.models.onnx_graph import OnnxGraph
from webnorm.models.vocabulary import WEIGHT_OFFSET, ZERO_CENTERED

_PRODUCTS = frozenset(
    {"MatMul", "Einsum", "FusedMatMul", "Attention", "MultiHeadAttention", "GroupQueryAttention"}
)
# Nodes between a norm and the product: transposes, rotary embeddings, repeated heads, caches.
_PASSED = frozenset(
    {
        "Identity",
        "Cast",
        "Transpose",
        "Reshape",
        "Unsqueeze",
        "Squeeze",
        "Expand",
        "Tile",
        "RotaryEmbedding",
        "Mul",
        "Add",
        "Sub",
        "Neg",
        "Div",
        "Concat",
        "Split",
        "Slice",
        "Gather",
        "ScatterND",
    }
)
_MOST_NODES = 200
_MOST_READERS = 64
_NORMS = ("layer_norm", "rms_norm", "l2_norm")


def pair_heads(matches: Iterable[NormMatch]) -> Iterator[NormMatch]:
    """Yield the norms, with each pair of queries and keys as one `qk_norm`."""
    waiting: dict[tuple[int, int, str], tuple[NormMatch, str]] = {}
    pairs: dict[NormMatch, NormMatch] = {}
    every = list(matches)
    for one in every:
        if one.op not in _NORMS or one.shape is None or len(one.shape) != 4 or one.axes != (3,):
            continue
        product = _product_of(one)
        if product is None:
            continue
        key = (id(one.graph), product[0], one.op)
        other = waiting.pop(key, None)
        if other is None:
            waiting[key] = (one, product[1])
        elif other[1] != product[1] and other[0].cols == one.cols:
            pairs[other[0]] = one
    keys = {*pairs.values()}
    for one in every:
        if one in pairs:
            yield _paired(one, pairs[one])
        elif one not in keys:
            yield one


def _product_of(found: NormMatch) -> tuple[int, str] | None:
    """Return the first product behind a norm, and the input by which it is reached."""
    graph = found.graph
    pending, seen = [found.y], {found.y}
    for _ in range(_MOST_NODES):
        if not pending:
            return None
        value = pending.pop(0)
        for node in graph.readers_of(value)[:_MOST_READERS]:
            if node.op in _PRODUCTS:
                return id(node), value
            if node.op in _PASSED:
                new = [name for name in node.outputs if name and name not in seen]
                seen.update(new)
                pending += new
    return None


def _paired(one: NormMatch, other: NormMatch) -> NormMatch:
    """Return two norms as the norm of queries and keys; the queries have more heads, or come first."""
    axis = _head_axis(one, other)
    first, second = _shape(one), _shape(other)
    one.keys_weight = other.weight
    if second[axis] > first[axis]:
        first, second = second, first
        one.weight, one.keys_weight = one.keys_weight, one.weight
    heads = {"q_heads": first[axis], "k_heads": second[axis]}
    one.sizes = {"batch": first[0], "tokens": first[3 - axis], **heads, "dim": first[3]}
    if ZERO_CENTERED in one.options:
        one.scalars[WEIGHT_OFFSET] = 1.0
    one.options = [f"norm={one.op}", *(["layout=heads_first"] if axis == 1 else [])]
    if one.weight and one.graph.type_of(one.graph.source(one.weight, views=True)).elements != first[3]:
        one.options.append("weight_per_head")
    one.op = "qk_norm"
    return one


def _shape(found: NormMatch) -> tuple[int, ...]:
    return found.shape or ()


def _head_axis(one: NormMatch, other: NormMatch) -> int:
    """Return the axis of the heads: the one that differs, else by a transpose behind the norm."""
    first, second = _shape(one), _shape(other)
    differing = [axis for axis in range(len(first) - 1) if first[axis] != second[axis]]
    if len(differing) == 1 and differing[0] > 0:
        return differing[0]
    return 2 if _transposed_later(one.graph, one.y) else 1


def _transposed_later(graph: OnnxGraph, value: str) -> bool:
    """Return whether a transpose of the two middle axes follows within a few nodes."""
    pending = [value]
    for _ in range(_MOST_NODES):
        if not pending:
            return False
        for node in graph.readers_of(pending.pop(0)):
            perm = node.attributes.get("perm", ())
            if node.op == "Transpose" and len(perm) >= 3 and perm[-1] == len(perm) - 1:
                return True
            if node.op in _PASSED and node.op != "Transpose":
                pending += [name for name in node.outputs if name]
    return False
