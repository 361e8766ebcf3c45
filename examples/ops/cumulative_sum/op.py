"""The inclusive cumulative sum along the last axis."""

import numpy as np

from webnorm.op import case, define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    cases=[
        # A sum of small numbers in float16 stops at 2048, since the next float16 number is 2050.
        case(
            "beyond-2048",
            {"x": lambda rng, shape: rng.random(shape)},
            sizes={"rows": 2, "cols": 9000},
            source="https://github.com/numpy/numpy/issues/24443",
        ),
        case(
            "float16-drift",
            {"x": lambda rng, shape: rng.standard_normal(shape)},
            sizes={"rows": 1, "cols": 20001},
            source="https://github.com/pytorch/pytorch/issues/180150",
        ),
    ],
)


@op.reference
def cumulative_sum(x):
    """Return the sum of each element and those before it."""
    return np.cumsum(x, axis=-1)


@op.mistake("leaves each element out of its own sum: the sum is exclusive")
def exclusive(x):
    """Return the sum of the elements before each."""
    return np.cumsum(x, axis=-1) - x


@op.mistake("starts again every 4 columns")
def of_vectors(x, cols):
    """Return the cumulative sum of each vec4."""
    padded = np.pad(x, [(0, 0), (0, -cols % 4)]).reshape(len(x), -1, 4)
    return np.cumsum(padded, axis=-1).reshape(len(x), -1)[:, :cols]


@op.mistake("adds along the first axis")
def along_rows(x):
    """Return the cumulative sum of each column."""
    return np.cumsum(x, axis=0)


@op.mistake("adds from the end")
def reversed_sum(x):
    """Return the sum of each element and those after it."""
    return np.cumsum(x[:, ::-1], axis=-1)[:, ::-1]
