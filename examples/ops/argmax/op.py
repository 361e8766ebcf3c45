"""The index of the largest element of each row; of equal elements the first."""

import numpy as np

from webnorm.op import case, define_op, tensor


def _normal(rng, shape):
    """Draw normal numbers."""
    return rng.standard_normal(shape)


def _few_values(rng, shape):
    """Draw whole numbers from 0 to 3: most rows have their maximum several times."""
    return rng.integers(0, 4, shape)


op = define_op(
    sizes={"rows": 4096, "cols": 8192},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("indices", "rows", "int32")],
    cases=[
        case(
            "ties",
            {"x": _few_values},
            sizes={"rows": 9, "cols": 10},
            source="https://github.com/pytorch/pytorch/issues/93630",
        ),
        # A butterfly reduction does not visit lanes in the order of their columns.
        case(
            "ties-of-lanes",
            {"x": _few_values},
            sizes={"rows": 61, "cols": 1000},
            source="https://github.com/ggml-org/llama.cpp/issues/15484",
        ),
        case(
            "the-middle",
            {"x": np.where(np.arange(88) == 44, 1.0, 0.0)[None]},
            source="https://github.com/tensorflow/tfjs/issues/665",
        ),
        case(
            "signed-zeros",
            {"x": np.where(np.arange(96) % 5 == 3, 0.0, np.where(np.arange(96) % 5 == 1, -0.0, -1.0))[None]},
            source="https://github.com/signalnine/q27/pull/14",
        ),
        case(
            "last", {"x": np.stack([np.arange(131.0), np.arange(131.0) - 1000.0])}, source="increasing rows"
        ),
        case(
            "masked-by-infinity",
            {"x": np.where(np.arange(1024) == np.array([[600], [1023], [1024]]), -1e4, -np.inf)},
            source="a mask of -inf that leaves one column, or none",
        ),
        # Rows too long for registers.
        case("long-rows", {"x": _normal}, sizes={"rows": 3, "cols": 20000}, source="a loop over the row"),
        case("long-odd-rows", {"x": _normal}, sizes={"rows": 2, "cols": 17001}, source="a loop over the row"),
    ],
)


@op.reference
def argmax(x):
    """Return the first index of the maximum."""
    return np.argmax(x, axis=-1)


@op.mistake("returns the last index of the maximum, not the first")
def last_index(x, cols):
    """Return the last index of the maximum."""
    return cols - 1 - np.argmax(x[:, ::-1], axis=-1)


@op.mistake("starts with a maximum of 0: rows of negative numbers give index 0")
def from_zero(x):
    """Return the index of the maximum if it is positive."""
    return np.where(x.max(-1) > 0, np.argmax(x, axis=-1), 0)


@op.mistake("returns the index of the minimum")
def of_minimum(x):
    """Return the first index of the minimum."""
    return np.argmin(x, axis=-1)


@op.mistake("counts vec4, not columns")
def of_vectors(x):
    """Return the index of the vec4 that has the maximum."""
    return np.argmax(x, axis=-1) // 4
