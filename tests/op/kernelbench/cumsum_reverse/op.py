"""Cumulative sum along the last axis from its end."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 1024, "cols": 8192},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
)


@op.reference
def cumsum_reverse(x):
    """Return the sums of the elements from each on."""
    return np.cumsum(x[:, ::-1], axis=-1)[:, ::-1]


@op.mistake("adds from the beginning")
def forward(x):
    """Return the sums up to each."""
    return np.cumsum(x, axis=-1)
