"""Mean element of each window of height and width."""

from itertools import product

from webnorm.op import define_op, require, tensor

WINDOW = 11
STRIDE = 11
# The length that an axis loses before the division by the stride.
LOST = WINDOW

op = define_op(
    sizes={"samples": 16, "channels": 32, "height": 256, "width": 256},
    inputs=[tensor("x", "samples channels height width")],
    outputs=[tensor("y", f"samples channels (height-{LOST})//{STRIDE}+1 (width-{LOST})//{STRIDE}+1")],
    require=[
        require(f"height >= {LOST}", "a window fits in"),
        require(f"width >= {LOST}", "a window fits in"),
    ],
)


def _windows(x):
    """Yield the elements at one position of all windows, one position after another."""
    counts = [(length - WINDOW) // STRIDE + 1 for length in x.shape[2:]]
    for places in product(range(WINDOW), repeat=2):
        cuts = [slice(at, at + STRIDE * (n - 1) + 1, STRIDE) for at, n in zip(places, counts, strict=True)]
        yield x[:, :, *cuts]


@op.reference
def average_pool2d(x):
    """Return the mean of each window."""
    return sum(_windows(x)) / WINDOW**2


@op.mistake("leaves the last element of a window out")
def short(x):
    """Return means with one element too few."""
    *some, _ = _windows(x)
    return sum(some) / WINDOW**2
