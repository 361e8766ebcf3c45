"""Cumulative sum along the last axis."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 1024, "cols": 8192},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def cumsum(x):
    """Return the sums of the elements up to each."""
    return np.cumsum(x, axis=-1)


@op.mistake("leaves the element itself out")
def exclusive(x):
    """Return the exclusive sum."""
    return np.cumsum(x, axis=-1) - x


@op.mistake("starts again after 256 elements")
def in_blocks(x):
    """Return the sums within blocks."""
    return np.concatenate([np.cumsum(x[:, i : i + 256], axis=-1) for i in range(0, x.shape[1], 256)], axis=-1)
