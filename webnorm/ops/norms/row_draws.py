"""Values that rows are drawn from: normal, constant, and those that break formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from webnorm.op.dtypes import Array

# Draws (rows, cols) in float64, or what broadcasts to it.
# In quotes: NumPy imports its generators where they are named, and who calls an op draws nothing.
Draw = Callable[["np.random.Generator"], Array]


def normal(rows: int, cols: int, scale: float = 1.0, mean: float = 0.0) -> Draw:
    """Independent normal numbers."""
    return lambda rng: rng.standard_normal((rows, cols)) * scale + mean


def constant(value: float) -> Draw:
    """One number everywhere."""
    return lambda rng: np.array(value)


def consecutive(first: int, count: int) -> Draw:
    """One row of neighbouring integers."""
    return lambda rng: np.arange(first, first + count, dtype=np.float64)[None, :]


# Far apart, so that none is a pivot for another's row.
LARGE = np.array([1e15, 3.7e14, 1.7e15, 1.1e10, 1e6, 123456.7], np.float32)[:, None]


def adjacent_floats(cols: int) -> Draw:
    """Rows of two neighbouring float32 numbers; from row to row more columns have the larger one."""

    def x(rng: np.random.Generator) -> Array:
        share = np.array([1, 2, 10, cols // 3, cols // 2, cols - 1])[:, None]
        columns = rng.permuted(np.broadcast_to(np.arange(cols), (6, cols)), axis=1)
        return np.where(columns < share, np.nextafter(LARGE, np.float32(np.inf)), LARGE).astype(np.float64)

    return x


def outlier_first(rows: int, cols: int) -> Draw:
    """Normal rows whose first number is a million."""
    return lambda rng: np.concatenate(
        [np.full((rows, 1), 1e6), rng.standard_normal((rows, cols - 1))], axis=1
    )


def outlier(rng: np.random.Generator) -> Array:
    """Three normal rows with a large number inside."""
    x = rng.standard_normal((3, 1024))
    x[:, 700] = 1e4
    return x


def row_scales(rng: np.random.Generator) -> Array:
    """Rows as small and as large as float32 takes their squares, and beyond."""
    return rng.standard_normal((24, 257)) * np.logspace(-18, 17, 24)[:, None]


def with_bad_values(*values: float, col: int = 77) -> Draw:
    """Normal rows, one of which has these values from a column on."""

    def x(rng: np.random.Generator) -> Array:
        drawn = rng.standard_normal((9, 130))
        drawn[4, col : col + len(values)] = values
        return drawn

    return x
