"""Cumulative sum along the last axis of the elements that a mask lets through."""

import numpy as np

from webnorm.op import define_op, integers, tensor

op = define_op(
    sizes={"rows": 1024, "cols": 8192},
    inputs=[tensor("x", "rows cols"), tensor("mask", "rows cols", dtype="uint8", draw=integers(0, 2))],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def masked_cumsum(x, mask):
    """Return the sums of the elements up to each where the mask is 1."""
    return np.cumsum(x * mask, axis=-1)


@op.mistake("does not look at the mask")
def unmasked(x):
    """Return the sums of all elements."""
    return np.cumsum(x, axis=-1)


@op.mistake("sets sums to 0 where the mask is 0")
def masked_after(x, mask):
    """Return the masked sums of all elements."""
    return np.cumsum(x, axis=-1) * mask
