"""Largest element of each window of height and width."""

from itertools import product

import numpy as np

from webnorm.op import define_op, require, tensor

WINDOW = 4
STRIDE = 1
PADDING = 1
# The length that an axis loses before the division by the stride.
LOST = WINDOW - 2 * PADDING

op = define_op(
    sizes={"samples": 16, "channels": 32, "height": 256, "width": 256},
    inputs=[tensor("x", "samples channels height width")],
    outputs=[tensor("y", f"samples channels height-{LOST}+1 width-{LOST}+1")],
    require=[
        require(f"height >= {LOST}", "a window fits in"),
        require(f"width >= {LOST}", "a window fits in"),
    ],
)


def _windows(x):
    """Yield the elements at one position of all windows, one position after another."""
    x = np.pad(x, [(0, 0)] * 2 + [(PADDING, PADDING)] * 2, constant_values=-np.inf)
    counts = [(length - WINDOW) // STRIDE + 1 for length in x.shape[2:]]
    for places in product(range(WINDOW), repeat=2):
        cuts = [slice(at, at + STRIDE * (n - 1) + 1, STRIDE) for at, n in zip(places, counts, strict=True)]
        yield x[:, :, *cuts]


@op.reference
def max_pool2d(x):
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
