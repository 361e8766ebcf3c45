"""The norms of an ONNX graph, as uses of webnorm's ops."""

from __future__ import annotations

import math
from collections.abc import Iterator

from webnorm.models.decomposed_norms import decomposed_norms
from webnorm.models.epilogues import extend
from webnorm.models.fused_norms import fused_norms
from webnorm.models.grouped_norms import as_group_norm
from webnorm.models.head_norms import pair_heads
from webnorm.models.norm_match import NormMatch
from webnorm.models.norm_use import NormParameters, NormUse
from webnorm.models.onnx_graph import OnnxGraph
from webnorm.models.vocabulary import parameter_options

# Digits of float32 numbers such as eps.
_DIGITS = 6


def find_norms(graph: OnnxGraph) -> tuple[list[NormUse], list[str]]:
    """Return the norms of a graph and of its subgraphs, and a line for each whose sizes are unknown."""
    uses, unknown = [], []
    for one in graph.all_graphs():
        for found in _matches(one):
            use = _use(found)
            if use is None:
                unknown.append(f"{found.op} at {found.node.name}: its shape is not known")
            else:
                uses.append(use)
    return uses, unknown


def _matches(graph: OnnxGraph) -> Iterator[NormMatch]:
    order = {node: index for index, node in enumerate(graph.nodes)}
    found = sorted((*fused_norms(graph), *decomposed_norms(graph)), key=lambda one: order[one.node])
    for one in found:
        as_group_norm(one)
        extend(one)
    return pair_heads(found)


def _use(found: NormMatch) -> NormUse | None:
    """Return a match as a use of its op; None if its sizes are unknown."""
    sizes = found.sizes or _row_sizes(found)
    if sizes is None:
        return None
    present = {"weight": bool(found.weight), "bias": bool(found.bias)}
    options = [*found.options, *parameter_options(found.op, present)]
    if found.weight and found.weight_dtype not in ("", found.dtype):
        options.append(f"weight_dtype={found.weight_dtype}")
    scalars = dict(found.scalars)
    if found.eps is not None:
        scalars["eps"] = found.eps
    return NormUse(
        found.op,
        sizes,
        found.dtype,
        tuple(sorted(options)),
        {name: _short(value) for name, value in scalars.items()},
        1,
        (found.node.name,),
        found.form,
        (*found.notes, *_axis_note(found)),
        (_parameters(found),),
    )


def _parameters(found: NormMatch) -> NormParameters:
    """Return the names of a norm's weights, without casts and reshapes."""
    pairs = found.op == "qk_norm"
    named = {
        "weight_q" if pairs else "weight": found.weight,
        "weight_k": found.keys_weight,
        "bias_q" if pairs else "bias": found.bias,
    }
    sources = {tensor: found.graph.source(name, views=True) for tensor, name in named.items() if name}
    return NormParameters(found.node.name, tuple(sources.items()))


def _short(number: float) -> float:
    """Return a float32 number with the digits in which people write it."""
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else number


def _row_sizes(found: NormMatch) -> dict[str, int] | None:
    rows, cols = found.rows, found.cols
    if rows is None or not cols or not found.axes or found.shape is None:
        return None
    if found.op != "softmax":
        return {"rows": rows, "cols": cols}
    last, rank = found.axes == (len(found.shape) - 1,), len(found.shape)
    queries = found.shape[-2] if last and rank > 1 else 1
    return {"batch": rows // max(1, queries), "queries": queries, "cols": cols}


def _axis_note(found: NormMatch) -> Iterator[str]:
    """Yield a note on rows whose elements lie apart in memory."""
    if found.shape is not None and found.axes and found.op not in ("group_norm", "qk_norm"):
        rank = len(found.shape)
        inside = found.shape[found.axes[0] :]
        if found.axes != tuple(range(found.axes[0], rank)) and math.prod(inside) != found.cols:
            yield f"over axis {', '.join(map(str, found.axes))} of {rank}: the elements of a row lie apart"
