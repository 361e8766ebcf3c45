"""Mean cross entropy of logits and target classes."""

import numpy as np

from webnorm.op import define_op, integers, tensor

op = define_op(
    sizes={"rows": 4096, "classes": 4096},
    inputs=[
        tensor("logits", "rows classes"),
        tensor("targets", "rows", dtype="int32", draw=integers(0, "classes")),
    ],
    outputs=[tensor("loss")],
)


def _losses(logits, targets):
    shifted = logits - logits.max(-1, keepdims=True)
    right = np.take_along_axis(shifted, targets[:, None], axis=-1)[:, 0]
    return np.log(np.exp(shifted).sum(-1)) - right


@op.reference
def cross_entropy_loss(logits, targets):
    """Return the mean of -log(softmax(logits)) at the targets."""
    return np.mean(_losses(logits, targets))


@op.mistake("takes the class after the right one")
def next_class(logits, targets):
    """Return the loss for the next class of each target."""
    return np.mean(_losses(logits, (targets + 1) % logits.shape[1]))


@op.mistake("returns the sum in place of the mean")
def total(logits, targets):
    """Return the sum of the losses."""
    return np.sum(_losses(logits, targets))
