"""Largest element of each window along the last axis."""

import numpy as np

from webnorm.op import define_op, require, tensor

WINDOW = 8
STRIDE = 1
PADDING = 4
DILATION = 3
# The length that the axis loses before the division by the stride.
LOST = DILATION * (WINDOW - 1) + 1 - 2 * PADDING

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
    x = np.pad(x, [(0, 0), (0, 0), (PADDING, PADDING)], constant_values=-np.inf)
    count = (x.shape[-1] - DILATION * (WINDOW - 1) - 1) // STRIDE + 1
    for place in range(WINDOW):
        first = DILATION * place
        yield x[..., first : first + STRIDE * (count - 1) + 1 : STRIDE]


@op.reference
def max_pool1d(x):
    """Return the maximum of each window. Positions outside of x do not count."""
    found, *others = _windows(x)
    for other in others:
        found = np.maximum(found, other)
    return found


@op.mistake("leaves the last element of a window out")
def short(x):
    """Return maxima of one element too few."""
    found, *others = _windows(x)
    for other in others[:-1]:
        found = np.maximum(found, other)
    return found
