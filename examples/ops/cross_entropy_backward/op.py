"""The gradient of cross-entropy for the logits, with a gradient of the loss for each row."""

import numpy as np

from webnorm.op import case, define_op, integers, tensor


def _normal(rng, shape):
    """Draw normal numbers."""
    return rng.standard_normal(shape)


def _masked(rng, shape):
    """Draw normal numbers; of row i only the first 1 + 100 i classes are not masked."""
    rows, classes = np.indices(shape)
    return np.where(classes <= 100 * rows, rng.standard_normal(shape), -np.inf)


_logits = np.random.default_rng(3).standard_normal((3, 67)) - 20.0

op = define_op(
    sizes={"rows": 4096, "classes": 4096},
    inputs=[
        tensor("logits", "rows classes"),
        tensor("targets", "rows", "int32", draw=integers(0, "classes")),
        # float32, like the loss.
        tensor("dloss", "rows", "float32"),
    ],
    outputs=[tensor("dlogits", "rows classes")],
    cases=[
        case(
            "padded-classes",
            {"logits": _logits, "targets": [0, 66, 31], "dloss": [1.0, -0.5, 2.0]},
            source="https://github.com/verl-project/verl/pull/5349",
        ),
        case(
            "common-offset",
            {"logits": _logits + 20000.0, "targets": [5, 66, 0], "dloss": [1.0, 1.0, 1.0]},
            source="https://github.com/pytorch/pytorch/pull/195829, a review comment",
        ),
        # Masked rows have no gradient.
        case("masked-rows", {"dloss": [0.0, 1.0, 0.0, 0.0, 3.0]}, source="rows with an ignored target"),
        # Kernels that put the lowest float32 in padded columns must not count them here.
        case(
            "masked-by-finfo-min",
            {"logits": np.full((3, 67), -3.4028234e38), "targets": [3, 66, 0]},
            source="masks of torch.finfo(torch.float32).min",
        ),
        # A fully masked part of a row has the maximum -inf, and -inf minus -inf is NaN.
        case(
            "masked-by-infinity",
            {"logits": _masked, "targets": [0, 100, 3, 1]},
            sizes={"rows": 4, "classes": 1024},
            source="classes that a mask of -inf leaves out",
        ),
        # Rows too long for registers.
        case(
            "long-rows",
            {"logits": _normal},
            sizes={"rows": 3, "classes": 20000},
            source="a loop over the row",
        ),
        case(
            "long-odd-rows",
            {"logits": _normal},
            sizes={"rows": 2, "classes": 17001},
            source="a loop over the row",
        ),
    ],
)


@op.reference
def cross_entropy_backward(logits, targets, dloss, classes):
    """Return (softmax(logits) - one_hot(targets)) * dloss."""
    e = np.exp(logits - logits.max(-1, keepdims=True))
    one_hot = np.arange(classes) == targets[:, None]
    return (e / e.sum(-1, keepdims=True) - one_hot) * dloss[:, None]


@op.mistake("leaves out the one-hot target")
def without_target(logits, dloss):
    """Return softmax(logits) * dloss."""
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) * dloss[:, None]


@op.mistake("leaves the gradient of the loss out")
def without_dloss(logits, targets, classes):
    """Return the gradient for dloss = 1."""
    return cross_entropy_backward(logits, targets, np.ones(len(logits)), classes)


@op.mistake("multiplies softmax by the gradient of the loss, but not the one-hot target")
def half_scaled(logits, targets, dloss, classes):
    """Return softmax(logits) * dloss - one_hot(targets)."""
    return without_target(logits, dloss) - (np.arange(classes) == targets[:, None])


@op.mistake("divides by the number of rows, as the gradient of a mean does")
def of_mean(logits, targets, dloss, classes):
    """Return the gradient of the mean of the losses."""
    return cross_entropy_backward(logits, targets, dloss, classes) / len(logits)
