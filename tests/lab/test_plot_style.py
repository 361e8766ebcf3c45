"""Colours in colour-blind vision, and positions of labels and ticks."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from webnorm.lab.plot.style import COLOURS, INK, MARKERS, places, spread, styles, ticks
from webnorm.op.dtypes import Array

WHITE, DARK = "#FFFFFF", "#0D1117"
# Matrices for linear RGB, severity 1: Machado, Oliveira and Fernandes, A Physiologically-based Model for
# Simulation of Color Vision Deficiency, 2009.
VISION = {
    "full": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
# sRGB (IEC 61966-2-1).
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> Array:
    """Convert #RRGGBB to linear RGB from 0 to 1."""
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return WCAG's contrast ratio, from 1 to 21."""
    low, high = sorted(float(XYZ[1] @ linear(colour)) + 0.05 for colour in (one, other))
    return high / low


def lab(rgb: Array) -> Array:
    """Convert linear RGB to CIELAB with its own white."""
    shares = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(shares > 216 / 24389, np.cbrt(shares), (24389 / 27 * shares + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: Array, other: Array) -> float:
    """Return the CIEDE2000 distance."""
    lightness, a, b = np.stack([one, other], axis=1)
    saturated = np.hypot(a, b).mean() ** 7
    a = a * (1.5 - 0.5 * np.sqrt(saturated / (saturated + 25**7)))
    chroma, hue = np.hypot(a, b), np.degrees(np.arctan2(b, a)) % 360
    turn = (hue[1] - hue[0] + 180) % 360 - 180
    mean = (hue[0] + turn / 2) % 360
    cosines = np.cos(np.radians([mean - 30, 2 * mean, 3 * mean + 6, 4 * mean - 63]))
    weight = 1 + cosines @ [-0.17, 0.24, 0.32, -0.20]
    middle = (lightness.mean() - 50) ** 2
    dl = (lightness[1] - lightness[0]) / (1 + 0.015 * middle / np.sqrt(20 + middle))
    dc = (chroma[1] - chroma[0]) / (1 + 0.045 * chroma.mean())
    dh = 2 * np.sqrt(chroma.prod()) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma.mean() * weight)
    saturated = chroma.mean() ** 7
    blue = np.sin(np.radians(60 * np.exp(-(((mean - 275) / 25) ** 2))))
    twist = -2 * np.sqrt(saturated / (saturated + 25**7)) * blue
    return float(np.sqrt(dl**2 + dc**2 + dh**2 + twist * dc * dh))


def nearest(colours: tuple[str, ...], vision: str) -> float:
    seen = [lab(VISION[vision] @ linear(colour)) for colour in colours]
    return min(distance(*pair) for pair in combinations(seen, 2))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
    ],
)
def test_the_distance_matches_sharma_wu_and_dalal(
    one: tuple[float, ...], other: tuple[float, ...], expected: float
) -> None:
    assert distance(np.array(one), np.array(other)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("vision", VISION)
def test_ten_colours_are_distinguishable(vision: str) -> None:
    assert len(COLOURS) == 10
    assert nearest(COLOURS, vision) >= (18.7 if vision == "full" else 13.6)
    assert nearest(COLOURS[:5], vision) >= 18.3


def test_colours_are_visible_on_white_and_dark_pages() -> None:
    for page in (WHITE, DARK):
        assert min(contrast(colour, page) for colour in COLOURS) >= 3
        assert contrast(INK, page) >= 4.34


def test_no_two_of_110_kernels_look_alike() -> None:
    looks = styles(map(str, range(len(COLOURS) * len(MARKERS))))
    assert len(set(looks.values())) == 110
    assert len({marker for _, marker in list(looks.values())[: len(COLOURS)]}) == len(COLOURS)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], []),
        ([90, 10, 50], [90, 10, 50]),
        ([50, 50, 50], [40, 50, 60]),
        ([50, 45, 90], [52.5, 42.5, 90]),
        ([0, 0, 100, 99], [0, 10, 100, 90]),
        # Two labels move apart and reach a third, and all three settle around their middle.
        ([20, 20, 24], [34 / 3, 64 / 3, 94 / 3]),
    ],
)
def test_labels_move_no_more_than_they_must(wanted: list[float], expected: list[float]) -> None:
    assert spread(wanted, 10, 0, 100) == pytest.approx(expected)


def test_labels_that_do_not_fit_keep_their_distance() -> None:
    assert spread([5, 1, 3], 10, 0, 15) == [20, 0, 10]


def test_no_places_drawn_at_random_are_nearer() -> None:
    rng = np.random.default_rng(1)
    steps = 10 * np.arange(4)
    for wanted in np.sort(rng.uniform(0, 100, (20, 4))):
        found = np.array(spread(wanted.tolist(), 10, 0, 100))
        assert np.diff(found).min() >= 10 - 1e-9 and found[0] >= 0 and found[-1] <= 100
        others = np.sort(rng.uniform(0, 70, (1000, 4))) + steps
        assert ((found - wanted) ** 2).sum() <= ((others - wanted) ** 2).sum(axis=1).min()


def test_sweeps_use_the_scale_with_more_space() -> None:
    powers, steps = [256, 512, 1024, 4096], list(range(128, 4096, 128))
    scale, at = places(powers)
    assert scale == "log" and at == pytest.approx({256: 0, 512: 0.25, 1024: 0.5, 4096: 1})
    scale, at = places(steps)
    assert scale == "linear" and at[steps[15]] == pytest.approx(0.5, abs=0.02)


def test_numbers_of_columns_have_space() -> None:
    _, at = places([255, 256, 257, 1023, 1024, 65536, 1 << 20])
    assert ticks(at) == [256, 1024, 65536, 1 << 20]
