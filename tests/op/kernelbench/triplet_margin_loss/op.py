"""Mean triplet loss: an anchor must be nearer to a positive than to a negative, by a margin."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("anchor", "rows cols"), tensor("positive", "rows cols"), tensor("negative", "rows cols")],
    outputs=[tensor("loss")],
    scalars=[scalar("margin", 1.0), scalar("eps", 1e-6)],
)


def _distance(one, other, eps):
    difference = one - other + eps
    return np.sqrt((difference * difference).sum(-1))


@op.reference
def triplet_margin_loss(anchor, positive, negative, margin, eps):
    """Return the mean of max(0, margin + distance to positive - distance to negative)."""
    nearer = _distance(anchor, positive, eps) - _distance(anchor, negative, eps)
    return np.mean(np.maximum(nearer + margin, 0))


@op.mistake("swaps positive and negative")
def swapped(anchor, positive, negative, margin, eps):
    """Return the loss with positive and negative exchanged."""
    return triplet_margin_loss(anchor, negative, positive, margin, eps)


@op.mistake("leaves the root out")
def squared(anchor, positive, negative, margin):
    """Return the loss of squared distances."""
    near, far = ((anchor - positive) ** 2).sum(-1), ((anchor - negative) ** 2).sum(-1)
    return np.mean(np.maximum(near - far + margin, 0))
