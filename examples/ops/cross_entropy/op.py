"""Cross-entropy of logits and integer targets, a loss for each row."""

import numpy as np

from webnorm.op import case, define_op, integers, tensor


def _normal(rng, shape):
    """Draw normal numbers."""
    return rng.standard_normal(shape)


def _masked(rng, shape):
    """Draw normal numbers; of row i only the first 1 + 100 i classes are not masked."""
    rows, classes = np.indices(shape)
    return np.where(classes <= 100 * rows, rng.standard_normal(shape), -np.inf)


# Logits so low that zeros in padded columns would dominate.
_far_below_zero = np.random.default_rng(3).standard_normal((3, 67)) - 20.0
_one_large = np.where(np.arange(67) == 30, 60.0, _far_below_zero)

op = define_op(
    sizes={"rows": 4096, "classes": 8192},
    inputs=[
        tensor("logits", "rows classes"),
        tensor("targets", "rows", "int32", draw=integers(0, "classes")),
    ],
    # Always float32, since bfloat16 has only three digits.
    outputs=[tensor("loss", "rows", "float32")],
    cases=[
        case(
            "padded-classes",
            {"logits": _far_below_zero, "targets": [0, 66, 31]},
            source="https://github.com/verl-project/verl/pull/5349",
        ),
        case(
            "common-offset",
            {"logits": _far_below_zero + 20000.0, "targets": [5, 66, 0]},
            source="https://github.com/pytorch/pytorch/pull/195829, a review comment",
        ),
        case(
            "certain", {"logits": _one_large, "targets": [30, 30, 29]}, source="a loss of 0, and a large one"
        ),
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
def cross_entropy(logits, targets):
    """Return log(sum(exp(logits))) - logits[target], with the maximum taken off first."""
    z = logits - logits.max(-1, keepdims=True)
    return np.log(np.exp(z).sum(-1)) - z[np.arange(len(z)), targets]


@op.mistake("leaves out the maximum: exp of large logits is infinite")
def without_maximum(logits, targets):
    """Return the loss without the maximum taken off, as float32 gets it."""
    z = logits.astype(np.float32)
    with np.errstate(all="ignore"):
        return (np.log(np.exp(z).sum(-1)) - z[np.arange(len(z)), targets]).astype(np.float64)


@op.mistake("reads the logit of the next class as the target's")
def next_class(logits, targets, classes):
    """Return the loss of targets one too large."""
    return cross_entropy(logits, np.minimum(targets + 1, classes - 1))


@op.mistake("returns the log-probability: the sign is wrong")
def negated(logits, targets):
    """Return minus the loss."""
    return -cross_entropy(logits, targets)


@op.mistake("counts classes past the end as zeros, up to the next multiple of 4")
def padded(logits, targets, classes):
    """Return the loss with padded logits of 0."""
    return cross_entropy(np.pad(logits, [(0, 0), (0, -classes % 4)]), targets)
