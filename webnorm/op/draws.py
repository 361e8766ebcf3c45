"""Distributions of an op's inputs, and hostile values in the same domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.errors import WebnormError
from webnorm.op.dtypes import Array

# A number, or an expression of the op's sizes.
Bound = float | int | str
# A function that draws an array of a shape, in float64 or in an integer type.
DrawFunction = Callable[["np.random.Generator", tuple[int, ...]], Array]


@dataclass(frozen=True)
class Normal:
    """Normal numbers of a mean and a standard deviation. The domain is every finite number."""

    mean: float = 0.0
    sd: float = 1.0

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, ...], value: Callable[[Bound], float]
    ) -> Array:
        """Return an array of this shape."""
        return rng.standard_normal(shape) * self.sd + self.mean

    def hostile(self) -> Mapping[str, DrawFunction]:
        """Return draws of values that break formulas, by name."""
        return {
            "mean-100": lambda rng, shape: rng.standard_normal(shape) + 100.0,
            "mean-1e4": lambda rng, shape: rng.standard_normal(shape) + 1e4,
            "sd-30": lambda rng, shape: rng.standard_normal(shape) * 30.0,
            "sd-1e-3": lambda rng, shape: rng.standard_normal(shape) * 1e-3,
            "zeros": lambda rng, shape: np.zeros(shape),
            "constant": lambda rng, shape: np.full(shape, 0.1),
            "negative": lambda rng, shape: -np.abs(rng.standard_normal(shape)) - 0.5,
            "spike": _spike,
            "scales": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 4, shape),
            "large": lambda rng, shape: rng.standard_normal(shape) * 1e15,
            "tiny": lambda rng, shape: rng.standard_normal(shape) * 1e-30,
        }


def _spike(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw normal numbers with one large number in the middle of each row."""
    drawn = rng.standard_normal(shape)
    if shape and shape[-1]:
        drawn[..., shape[-1] // 2] = 1e4
    return drawn


@dataclass(frozen=True)
class Uniform:
    """Numbers from `low` up to, but not including, `high`."""

    low: float
    high: float

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, ...], value: Callable[[Bound], float]
    ) -> Array:
        """Return an array of this shape."""
        return rng.random(shape) * (self.high - self.low) + self.low

    def hostile(self) -> Mapping[str, DrawFunction]:
        """Return draws of values at the ends of the range, by name."""
        width = self.high - self.low
        return {
            "lowest": lambda rng, shape: np.full(shape, self.low),
            "highest": lambda rng, shape: np.full(shape, self.low + width * (1.0 - 2.0**-9)),
            "near-lowest": lambda rng, shape: self.low + width * rng.random(shape) * 2.0**-12,
        }


@dataclass(frozen=True)
class Integers:
    """Whole numbers from `low` up to, but not including, `high`; both may be expressions of sizes."""

    low: Bound
    high: Bound

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, ...], value: Callable[[Bound], float]
    ) -> Array:
        """Return an array of this shape; raises WebnormError for an empty range."""
        low, high = int(value(self.low)), int(value(self.high))
        if high <= low:
            raise WebnormError(f"integers({self.low!r}, {self.high!r}) is empty: {low} to {high}")
        return rng.integers(low, high, shape, np.int64)

    def hostile(self) -> Mapping[str, DrawFunction]:
        """Return no draws: the range depends on sizes."""
        return {}


@dataclass(frozen=True)
class Permutation:
    """The numbers from 0 on along the last axis, in random order."""

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, ...], value: Callable[[Bound], float]
    ) -> Array:
        """Return an array of this shape."""
        ordered = np.broadcast_to(np.arange(shape[-1], dtype=np.int64), shape)
        return rng.permuted(ordered, axis=-1)

    def hostile(self) -> Mapping[str, DrawFunction]:
        """Return the ascending and the descending order, by name."""
        return {
            "ordered": lambda rng, shape: np.broadcast_to(np.arange(shape[-1]), shape).copy(),
            "reversed": lambda rng, shape: np.broadcast_to(np.arange(shape[-1])[::-1], shape).copy(),
        }


@dataclass(frozen=True)
class Drawn:
    """A user's draw function, `function(rng, shape)`, with the sizes that it names as keywords."""

    function: Callable[..., Any]
    names: tuple[str, ...]

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, ...], value: Callable[[Bound], float]
    ) -> Array:
        """Return an array of this shape; raises WebnormError for another."""
        found = np.asarray(self.function(rng, shape, **{name: value(name) for name in self.names}))
        if found.shape != shape:
            raise WebnormError(f"a draw gave an array of shape {found.shape}; expected {shape}")
        return found

    def hostile(self) -> Mapping[str, DrawFunction]:
        """Return no draws: only the function knows its domain."""
        return {}


Draw = Normal | Uniform | Integers | Permutation | Drawn


def normal(mean: float = 0.0, sd: float = 1.0) -> Draw:
    """Draw normal numbers; checks try large, tiny, constant and spiked ones as well."""
    return Normal(float(mean), float(sd))


def uniform(low: float, high: float) -> Draw:
    """Draw numbers in [low, high); checks try the ends as well."""
    if not low < high:
        raise WebnormError(f"uniform({low!r}, {high!r}) is empty; expected low below high")
    return Uniform(float(low), float(high))


def integers(low: Bound, high: Bound) -> Draw:
    """Draw whole numbers in [low, high); both may be texts with the op's sizes, such as "classes"."""
    return Integers(low, high)


def permutation() -> Draw:
    """Draw the numbers 0, 1, ... along the last axis in random order."""
    return Permutation()


def hostile_draws(draws: Mapping[str, Draw]) -> Iterator[tuple[str, Mapping[str, DrawFunction]]]:
    """Yield the name of each kind of hostile values, and the inputs that have them with their draws."""
    by_input = {name: draw.hostile() for name, draw in draws.items()}
    for kind in dict.fromkeys(kind for kinds in by_input.values() for kind in kinds):
        yield kind, {name: kinds[kind] for name, kinds in by_input.items() if kind in kinds}
