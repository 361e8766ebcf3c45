"""Mean hinge loss of predictions and targets. Each target is 1 or -1, one for each column."""

import numpy as np

from webnorm.op import define_op, tensor


def sign(rng, shape):
    """Draw 1 and -1."""
    return rng.integers(0, 2, shape) * 2.0 - 1.0


op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("predictions", "rows cols"), tensor("targets", "cols", draw=sign)],
    outputs=[tensor("loss")],
)


@op.reference
def hinge_loss(predictions, targets):
    """Return the mean of max(0, 1 - predictions targets)."""
    return np.mean(np.maximum(1 - predictions * targets, 0))


@op.mistake("counts what is below 0, too")
def linear(predictions, targets):
    """Return the mean of 1 - predictions targets."""
    return np.mean(1 - predictions * targets)
