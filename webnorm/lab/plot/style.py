"""How a plot looks on white and on dark pages: colours, marks, and where labels stand."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from webnorm.errors import one_line, shortened

# Found by a search for the greatest distance between any two. That is 18.7 (CIEDE2000), and 13.6 for
# protanopes, deuteranopes and tritanopes; for the first five 18.3. Six of Okabe and Ito's colours, all but
# black and yellow, come to 10.9. Each has a contrast of 3:1, which WCAG 2.2 (1.4.11) asks of graphics, with
# white and with #0d1117, a dark page of GitHub's. That leaves L* from 40 to 62: in greyscale some are alike,
# and markers tell them apart.
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
# One more than there are colours: 110 pairs, and no two of the first ten share either.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*")
# Of text, axes and the roofline: 4.35:1 with white and with #0d1117. No colour has more with both.
INK = "#797979"

SETTINGS: dict[Any, Any] = {
    # Text stays text (searchable, small), and equal reports give equal files.
    "svg.fonttype": "none",
    "svg.hashsalt": "webnorm",
    # A name is no formula, whatever its dollar signs enclose.
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

# Characters of a label: a longer one would leave no room for the picture.
_MOST_LABEL = 60
# Characters of a title in an inch.
_IN_AN_INCH = 14
# What a digit of a number takes up of an axis' length.
_DIGIT = 0.024


def styles(kernels: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each kernel."""
    return {
        kernel: (COLOURS[at % len(COLOURS)], MARKERS[at % len(MARKERS)])
        for at, kernel in enumerate(dict.fromkeys(kernels))
    }


def label(name: str) -> str:
    """A name from a file or a device, in one line that leaves room for the picture."""
    return shortened(one_line(name), _MOST_LABEL)


def wrapped(title: str, inches: float) -> str:
    """A title in lines that are not wider."""
    return textwrap.fill(title, int(_IN_AN_INCH * inches))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least `gap` apart, in the order of those wanted and as near to them as can be.

    The sum of squared moves is the least within `low` to `high`; what does not fit there goes beyond `high`.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    # Less their gaps, places have only to ascend: neighbours that do not are pooled at their mean.
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
    """Where ascending sizes stand on an axis, from 0 to 1, on that scale, "linear" or "log", which leaves the
    nearest two further apart.
    """

    def shared(values: Sequence[float]) -> list[float]:
        return [(value - values[0]) / (values[-1] - values[0]) for value in values]

    def nearest(scale: str) -> float:
        return min(after - before for before, after in pairwise(scales[scale]))

    scales = {"log": shared([math.log(n) for n in sizes]), "linear": shared(sizes)}
    scale = max(scales, key=nearest)
    return scale, dict(zip(sizes, scales[scale], strict=True))


def ticks(at: Mapping[int, float]) -> list[int]:
    """Sizes that have room for their number where they stand; multiples of greater powers of two first."""
    chosen: list[int] = []
    for one in sorted(at, key=lambda n: (-(n & -n), n)):
        if all(abs(at[one] - at[n]) >= _DIGIT * (len(str(one)) + len(str(n))) / 2 for n in chosen):
            chosen.append(one)
    return sorted(chosen)
