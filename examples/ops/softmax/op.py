"""Softmax over the last axis."""

import numpy as np

from webnorm.op import case, define_op, tensor


def _normal(rng, shape):
    """Draw normal numbers."""
    return rng.standard_normal(shape)


def _masked(rng, shape):
    """Draw normal numbers; of row i only the first 1 + 100 i columns are not masked."""
    rows, cols = np.indices(shape)
    return np.where(cols <= 100 * rows, rng.standard_normal(shape), -np.inf)


op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    cases=[
        # Every column is masked with float16's lowest number, so the output is uniform. A kernel whose
        # maximum has a higher lower bound returns zeros or NaN.
        case(
            "masked-rows",
            {"x": np.full((3, 70), -65504.0)},
            source="https://github.com/tracel-ai/burn/pull/4697, whose fix has a floor of -1e4",
        ),
        case(
            "one-column-left",
            {"x": np.where(np.arange(72) == 71, -30000.0, -65504.0)[None].repeat(3, 0)},
            source="https://github.com/tracel-ai/burn/pull/4697, whose fix has a floor of -1e4",
        ),
        # Kernels that put the lowest float32 in padded columns must not count them here.
        case(
            "masked-by-finfo-min",
            {"x": np.full((3, 70), -3.4028234e38)},
            source="masks of torch.finfo(torch.float32).min",
        ),
        # A fully masked part of a row has the maximum -inf, and -inf minus -inf is NaN.
        case(
            "masked-by-infinity",
            {"x": _masked},
            sizes={"rows": 4, "cols": 1024},
            source="a causal mask of -inf, whose first row has one column left",
        ),
        # Rows too long for registers.
        case("long-rows", {"x": _normal}, sizes={"rows": 3, "cols": 20000}, source="a loop over the row"),
        case("long-odd-rows", {"x": _normal}, sizes={"rows": 2, "cols": 17001}, source="a loop over the row"),
    ],
)


@op.reference
def softmax(x):
    """Return exp(x) over its sum; the maximum of the row is subtracted first, so that nothing overflows."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@op.mistake("leaves out the maximum: exp of large numbers is infinite")
def without_maximum(x):
    """Return exp(x) over its sum, as float32 gets it."""
    with np.errstate(all="ignore"):
        e = np.exp(x.astype(np.float32))
        return (e / e.sum(-1, keepdims=True)).astype(np.float64)


@op.mistake("leaves the last column out of the sum")
def short_sum(x):
    """Return softmax with a sum that lacks its last term."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e[:, :-1].sum(-1, keepdims=True)


@op.mistake("does not divide by the sum")
def unscaled(x):
    """Return the exponentials."""
    return np.exp(x - x.max(-1, keepdims=True))


@op.mistake("counts columns past the end as zeros, up to the next multiple of 4")
def padded_sum(x, cols):
    """Return softmax with exp(0) for each padded column in the sum."""
    largest = x.max(-1, keepdims=True)
    e = np.exp(x - largest)
    return e / (e.sum(-1, keepdims=True) + -cols % 4 * np.exp(-largest))
