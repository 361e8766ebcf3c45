"""Mean of 1 minus the cosine of the angle between predictions and targets."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("predictions", "rows cols"), tensor("targets", "rows cols")],
    outputs=[tensor("loss")],
    scalars=[scalar("eps", 1e-8)],
)


def _norm(x, eps):
    return np.maximum(np.sqrt((x * x).sum(-1)), eps)


@op.reference
def cosine_similarity_loss(predictions, targets, eps):
    """Return the mean of 1 - cos; a norm below eps counts as eps."""
    products = (predictions * targets).sum(-1)
    return np.mean(1 - products / (_norm(predictions, eps) * _norm(targets, eps)))


@op.mistake("leaves the norm of the targets out")
def one_norm(predictions, targets, eps):
    """Return the loss with only one of the two norms."""
    products = (predictions * targets).sum(-1)
    return np.mean(1 - products / _norm(predictions, eps))
