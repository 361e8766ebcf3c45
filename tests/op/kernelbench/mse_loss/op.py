"""Mean of the squared differences of predictions and targets."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("predictions", "rows cols"), tensor("targets", "rows cols")],
    outputs=[tensor("loss")],
)


@op.reference
def mse_loss(predictions, targets):
    """Return the mean of (predictions - targets)^2."""
    return np.mean((predictions - targets) ** 2)


@op.mistake("leaves the last row out")
def short(predictions, targets):
    """Return the mean with one row too few."""
    return np.sum((predictions - targets)[:-1] ** 2) / predictions.size
