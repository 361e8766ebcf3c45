"""Mean Huber loss of predictions and targets: squares of small differences, absolute values of large ones."""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("predictions", "rows cols"), tensor("targets", "rows cols")],
    outputs=[tensor("loss")],
)


@op.reference
def huber_loss(predictions, targets):
    """Return the mean of d^2 / 2 where d = |predictions - targets| is below 1, else of d - 1/2."""
    distance = np.abs(predictions - targets)
    return np.mean(np.where(distance < 1, 0.5 * distance * distance, distance - 0.5))


@op.mistake("leaves -1/2 out")
def unjoined(predictions, targets):
    """Return a loss that jumps where d is 1."""
    distance = np.abs(predictions - targets)
    return np.mean(np.where(distance < 1, 0.5 * distance * distance, distance))
