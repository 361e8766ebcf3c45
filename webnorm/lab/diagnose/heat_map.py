"""Error locations of an output: a heat map, and the rows and columns that contain errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.gpu.buffers import POISON
from webnorm.lab.verify.deviations import OutputComparison
from webnorm.op.blocks import map_row_blocks
from webnorm.op.dtypes import DTYPES, Array

# Rows and columns refer to the output as a matrix. The playground's snapshots contain these names.
# The largest map, which leaves space for other text in a terminal.
MOST_ROWS, MOST_COLS = 32, 64
# Ranges of rows or columns that a sentence lists.
_MOST_RANGES = 6
_LONGEST_PERIOD = 64


@dataclass(frozen=True)
class HeatMap:
    """A map of the errors of an output (rows, cols).

    `cells` contains rows of cells. A cell covers `row_step` x `col_step` elements, fewer at the ends, and
    contains their largest error in units of the tolerance. Above 1 is wrong. A cell is infinite if an element
    is not a number or was never written. An output without rows is one row.
    """

    output: str
    rows: int
    cols: int
    row_step: int
    col_step: int
    cells: tuple[tuple[float, ...], ...]


def heat_map(one: OutputComparison) -> HeatMap:
    """Return the error map of an output, with at most MOST_ROWS x MOST_COLS cells."""
    flat = one.answer.value.ndim == 1
    rows, cols = (1, one.rows) if flat else (one.rows, one.cols)
    row_step, col_step = -(-rows // MOST_ROWS) or 1, -(-cols // MOST_COLS) or 1
    cells = np.zeros((-(-rows // row_step), -(-cols // col_step)))

    def of(part: slice) -> tuple[int, Array]:
        ratio = one.of(part).ratio
        if one.dtype != "float32":
            # Poison can be a valid number of a narrow type or an integer.
            ratio[never_written(one.got, part) & (ratio > 1.0)] = np.inf
        if flat:
            return part.start, _largest(ratio[None, :], part.start, col_step, axis=1)
        by_cols = _largest(ratio.reshape(len(ratio), -1), 0, col_step, axis=1)
        return part.start, _largest(by_cols, part.start, row_step, axis=0)

    for start, found in one.map_blocks(of):
        row, col = (0, start // col_step) if flat else (start // row_step, 0)
        place = cells[row : row + found.shape[0], col : col + found.shape[1]]
        np.maximum(place, found, out=place)
    return HeatMap(one.name, rows, cols, row_step, col_step, tuple(tuple(row) for row in cells.tolist()))


def _largest(values: Array, first: int, step: int, axis: int) -> Array:
    """Return the largest of each group of `step` elements along an axis; the first has the index `first`."""
    starts = np.arange(first, first + values.shape[axis])
    begins = np.flatnonzero((starts % step == 0) | (starts == first))
    found: Array = np.maximum.reduceat(values, begins, axis=axis)
    return found


def never_written(got: Array, rows: slice) -> Array:
    """Return the mask of elements of some rows that still contain poison.

    The bits are compared at their position in a word. A one-byte number can equal them by chance, so that
    whole words have to agree.
    """
    size, mine = got.dtype.itemsize, np.ascontiguousarray(got[rows])
    poison = np.frombuffer(POISON.tobytes(), f"u{size}")
    at = rows.start * (got.size // max(len(got), 1)) + np.arange(mine.size)
    alike: Array = mine.reshape(-1).view(f"u{size}") == poison[at % len(poison)]
    if size == 1:
        alike = np.isin(at // 4, at[~alike] // 4, invert=True)
    elif got.dtype == DTYPES["bfloat16"] and not alike[at % 2 == 0].any():
        # The upper half of the word is its usual NaN.
        alike[:] = False
    return alike.reshape(mine.shape)


@dataclass(frozen=True)
class ErrorLocations:
    """The locations of certain elements of an output, for example wrong ones.

    `some_rows` and `some_cols` mark the rows and columns with at least one such element, `whole_rows` and
    `whole_cols` those with no other elements. `first` is the index of the first one.
    """

    count: int
    some_rows: Array
    whole_rows: Array
    some_cols: Array
    whole_cols: Array
    first: tuple[int, ...] | None


def error_locations(true_of: Callable[[slice], Array], rows: int, cols: int) -> ErrorLocations:
    """Return the locations of elements for which `true_of` gives true.

    `true_of` takes a slice of rows. All rows together have the shape (rows, cols) or (rows,).
    """

    def of(part: slice) -> tuple[Any, ...]:
        mask = true_of(part)
        mask = mask.reshape(len(mask), -1)
        at = np.unravel_index(int(mask.argmax()), mask.shape)
        first = (part.start + int(at[0]), int(at[1])) if mask.any() else None
        return mask.any(1), mask.all(1), mask.any(0), mask.all(0), int(mask.sum()), first

    parts = map_row_blocks(of, rows, cols)
    some_rows, whole_rows, some_cols, whole_cols, counts, firsts = zip(*parts, strict=True)
    return ErrorLocations(
        count=sum(counts),
        some_rows=np.concatenate(some_rows),
        whole_rows=np.concatenate(whole_rows),
        some_cols=np.logical_or.reduce(some_cols),
        whole_cols=np.logical_and.reduce(whole_cols),
        first=next((first for first in firsts if first), None),
    )


def wrong_elements(one: OutputComparison) -> ErrorLocations:
    """Return the locations of elements of an output that exceed their tolerance."""
    return error_locations(lambda part: one.of(part).ratio > 1.0, one.rows, one.cols)


def locations_text(mask: Array) -> str:
    """Return the true indices as text.

    Examples are "3", "5 to 9", "0, 4, ..., 60 (every 4th)" and "1 to 7 of every 8".
    """
    numbers = np.flatnonzero(mask)
    steps = set(np.diff(numbers).tolist())
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        step = steps.pop()
        return f"{numbers[0]}, {numbers[1]}, ..., {numbers[-1]} (every {ordinal(step)})"
    ranges = list(_ranges(numbers))
    if len(ranges) <= _MOST_RANGES:
        return ", ".join(ranges)
    period = _period(mask)
    if period:
        return f"{', '.join(_ranges(np.flatnonzero(mask[:period])))} of every {period}"
    return f"{', '.join(ranges[:_MOST_RANGES])} and more ({len(numbers)} in all)"


def short_text(mask: Array) -> bool:
    """Return true if `locations_text` lists all true indices."""
    numbers = np.flatnonzero(mask)
    steps = np.diff(numbers).tolist()
    few = len(steps) - steps.count(1) < _MOST_RANGES
    return few or len(set(steps)) == 1 or _period(mask) is not None


def _period(mask: Array) -> int | None:
    """Return the period of a mask, or None."""
    periods = range(2, min(_LONGEST_PERIOD, len(mask) // 3) + 1)
    return next((period for period in periods if (mask[period:] == mask[:-period]).all()), None)


def _ranges(numbers: Array) -> Iterator[str]:
    """Yield ascending numbers as text, consecutive ones as one range."""
    ends = np.flatnonzero(np.diff(numbers) != 1)
    for begin, end in zip([0, *(ends + 1)], [*ends, len(numbers) - 1], strict=True):
        first, last = numbers[begin], numbers[end]
        yield f"{first}" if first == last else f"{first} to {last}"


def ordinal(number: int) -> str:
    """Return an ordinal such as "2nd"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
