"""Group norms that a graph computes as norms of reshaped tensors, as torch's exporters write them."""

from __future__ import annotations

import math

from webnorm.models.fused_norms import set_channels
from webnorm.models.norm_match import NormMatch

_RESHAPES = ("Reshape", "Flatten")


def as_group_norm(found: NormMatch) -> None:
    """Turn an instance norm or layer norm between two reshapes into the group norm that it is.

    The tensor is (N, C, ...), its reshaped form (N, groups, ...), and the result is (N, C, ...) again.
    """
    if found.op not in ("group_norm", "layer_norm") or found.shape is None or len(found.shape) < 3:
        return
    if found.op == "layer_norm" and found.axes != tuple(range(2, len(found.shape))):
        return
    graph = found.graph
    before = graph.made_by(found.x, *_RESHAPES)
    step = graph.only_reader(found.y)
    outer = graph.type_of(before.input(0)).known_shape if before is not None else None
    if before is None or outer is None or step is None or step[0].op not in _RESHAPES:
        _as_instance_norm(found)
        return
    groups, back = found.shape[1], graph.type_of(step[0].output(0)).known_shape
    fits = back in (None, outer) and len(outer) >= 3 and math.prod(outer) == math.prod(found.shape)
    if not fits or outer[0] != found.shape[0] or not groups or outer[1] % groups or found.weight:
        _as_instance_norm(found)
        return
    found.x, found.y = before.input(0), step[0].output(0)
    found.op, found.shape, found.groups, found.axes = "group_norm", outer, groups, ()
    set_channels(found)


def _as_instance_norm(found: NormMatch) -> None:
    """Turn a layer norm over all spatial axes into an instance norm; one axis alone is a norm of rows."""
    if found.op == "layer_norm" and found.shape is not None and len(found.shape) > 3:
        found.op, found.axes = "group_norm", ()
        set_channels(found)
