"""Kullback-Leibler divergence of predicted distributions from targets, summed over classes."""

import numpy as np

from webnorm.op import define_op, tensor


def distribution(rng, shape):
    """Draw rows of positive numbers with the sum 1."""
    e = np.exp(2 * rng.standard_normal(shape))
    return e / e.sum(-1, keepdims=True)


op = define_op(
    sizes={"rows": 4096, "classes": 4096},
    inputs=[
        tensor("predictions", "rows classes", draw=distribution),
        tensor("targets", "rows classes", draw=distribution),
    ],
    outputs=[tensor("loss")],
)

# float16 has no number between 0 and this one, and a class of probability 0 has no logarithm.
LEAST = 2.0**-24


@op.reference
def kl_div_loss(predictions, targets):
    """Return the sum of targets (log targets - log predictions) over the number of rows."""
    logarithms = np.log(np.maximum(targets, LEAST)) - np.log(np.maximum(predictions, LEAST))
    return np.sum(targets * logarithms) / len(targets)


@op.mistake("divides by all elements")
def mean(predictions, targets):
    """Return the mean over rows and classes."""
    return kl_div_loss(predictions, targets) / targets.shape[1]


@op.mistake("swaps predictions and targets")
def swapped(predictions, targets):
    """Return the divergence with predictions and targets exchanged."""
    return kl_div_loss(targets, predictions)
