"""Largest element of each window of depth, height and width."""

from itertools import product

import numpy as np

from webnorm.op import define_op, require, tensor

WINDOW = 3
STRIDE = 2
PADDING = 1
DILATION = 3
AXES = ("depth", "height", "width")
# The length that an axis loses before the division by the stride.
LOST = DILATION * (WINDOW - 1) + 1 - 2 * PADDING

op = define_op(
    sizes={"samples": 4, "channels": 16, "depth": 64, "height": 64, "width": 64},
    inputs=[tensor("x", "samples channels depth height width")],
    outputs=[tensor("y", " ".join(["samples channels", *(f"({axis}-{LOST})//{STRIDE}+1" for axis in AXES)]))],
    require=[
        require(f"depth >= {LOST}", "a window fits in"),
        require(f"height >= {LOST}", "a window fits in"),
        require(f"width >= {LOST}", "a window fits in"),
    ],
)


def _windows(x):
    """Yield the elements at one position of all windows, one position after another."""
    x = np.pad(x, [(0, 0)] * 2 + [(PADDING, PADDING)] * 3, constant_values=-np.inf)
    counts = [(length - DILATION * (WINDOW - 1) - 1) // STRIDE + 1 for length in x.shape[2:]]
    for places in product(range(WINDOW), repeat=3):
        firsts = [DILATION * place for place in places]
        cuts = [slice(at, at + STRIDE * (n - 1) + 1, STRIDE) for at, n in zip(firsts, counts, strict=True)]
        yield x[:, :, *cuts]


@op.reference
def max_pool3d(x):
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
