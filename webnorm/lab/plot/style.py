"""Style of plots for light and dark pages: colours, markers, and positions of labels."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from webnorm.errors import one_line, shortened

# A search maximized the smallest distance between two of them: 18.7 (CIEDE2000). For protanopes, deuteranopes
# and tritanopes it is 13.6, and 18.3 for the first five. Six of Okabe and Ito's colours, all but black and
# yellow, reach 10.9. Each has a contrast of at least 3:1 to white and to #0d1117, GitHub's dark page, as
# WCAG 2.2 (1.4.11) demands for graphics. That limits L* to 40 to 62: some look the same in greyscale, where
# markers distinguish them.
COLOURS = (
    "#1745FF",
    "#C30F00",
    "#B2896F",
    "#30A1A7",
    "#7C566B",
    "#8D9D00",
    "#B7009C",
    "#A67EF9",
    "#4E6E4E",
    "#FF469F",
)
# One more than the colours. That makes 110 pairs, and the first ten share neither colour nor marker.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*")
# For text, axes and the roofline: a contrast of 4.35:1 to both white and #0d1117, the highest possible.
INK = "#797979"

SETTINGS: dict[Any, Any] = {
    # Text stays text, which is searchable and small. The salt makes equal reports give equal files.
    "svg.fonttype": "none",
    "svg.hashsalt": "webnorm",
    # Dollar signs in names must not start a formula.
    "text.parse_math": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "grid.color": INK,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.size": 9,
}

# Characters of a label. Longer labels would leave no space for the axes.
_MOST_LABEL = 60
# Characters of a title per inch.
_IN_AN_INCH = 14
# The width of a digit as a share of an axis' length.
_DIGIT = 0.024


def styles(kernels: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for each kernel."""
    return {
        kernel: (COLOURS[at % len(COLOURS)], MARKERS[at % len(MARKERS)])
        for at, kernel in enumerate(dict.fromkeys(kernels))
    }


def label(name: str) -> str:
    """Return a name from a file or a device, in one line that leaves space for the axes."""
    return shortened(one_line(name), _MOST_LABEL)


def wrapped(title: str, inches: float) -> str:
    """Return a title wrapped to lines of this width."""
    return textwrap.fill(title, int(_IN_AN_INCH * inches))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions at least `gap` apart, in the order of `wanted` and as close to it as possible.

    The positions between `low` and `high` minimize the sum of squared moves. If they do not fit, they go
    beyond `high`.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    # Without their gaps, positions only have to ascend: isotonic regression pools those that do not.
    pools: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        mean, count = wanted[index] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        pools.append((mean, count))
    highest = max(low, high - (len(order) - 1) * gap)
    level = [min(max(mean, low), highest) for mean, count in pools for _ in range(count)]
    found = dict(zip(order, (at + rank * gap for rank, at in enumerate(level)), strict=True))
    return [found[index] for index in range(len(wanted))]


def places(sizes: Sequence[int]) -> tuple[str, dict[int, float]]:
    """Return a scale, "linear" or "log", and the positions of ascending sizes on it, from 0 to 1.

    The scale is the one that leaves more space between the two closest sizes.
    """

    def shared(values: Sequence[float]) -> list[float]:
        return [(value - values[0]) / (values[-1] - values[0]) for value in values]

    def nearest(scale: str) -> float:
        return min(after - before for before, after in pairwise(scales[scale]))

    scales = {"log": shared([math.log(n) for n in sizes]), "linear": shared(sizes)}
    scale = max(scales, key=nearest)
    return scale, dict(zip(sizes, scales[scale], strict=True))


def ticks(at: Mapping[int, float]) -> list[int]:
    """Return the sizes that get a number on the axis; multiples of larger powers of two take precedence."""
    chosen: list[int] = []
    for one in sorted(at, key=lambda n: (-(n & -n), n)):
        if all(abs(at[one] - at[n]) >= _DIGIT * (len(str(one)) + len(str(n))) / 2 for n in chosen):
            chosen.append(one)
    return sorted(chosen)
