"""Cumulative sum along the last axis, of the elements before each."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 1024, "cols": 8192},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def cumsum_exclusive(x):
    """Return the sums of the elements before each; the first is 0."""
    zero = np.zeros_like(x[:, :1])
    return np.concatenate([zero, np.cumsum(x[:, :-1], axis=-1)], axis=-1)


@op.mistake("adds the element itself, too")
def inclusive(x):
    """Return the sums up to each."""
    return np.cumsum(x, axis=-1)
