"""Mean element of each window along the last axis."""

import numpy as np

from webnorm.op import define_op, require, tensor

WINDOW = 8
STRIDE = 1
PADDING = 4
# The length that the axis loses before the division by the stride.
LOST = WINDOW - 2 * PADDING

op = define_op(
    sizes={"samples": 16, "channels": 64, "length": 16384},
    inputs=[tensor("x", "samples channels length")],
    outputs=[tensor("y", f"samples channels length-{LOST}+1")],
    require=[
        require(f"length >= {LOST}", "a window fits in"),
    ],
)


def _windows(x):
    """Yield the elements at one position of all windows, one position after another."""
    x = np.pad(x, [(0, 0), (0, 0), (PADDING, PADDING)])
    count = (x.shape[-1] - WINDOW) // STRIDE + 1
    for place in range(WINDOW):
        first = place
        yield x[..., first : first + STRIDE * (count - 1) + 1 : STRIDE]


@op.reference
def average_pool1d(x):
    """Return the mean of each window. Zeros around x count."""
    return sum(_windows(x)) / WINDOW


@op.mistake("leaves the last element of a window out")
def short(x):
    """Return means with one element too few."""
    *some, _ = _windows(x)
    return sum(some) / WINDOW
