from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from webnorm.gpu.buffers import POISON
from webnorm.lab.diagnose.heat_map import (
    MOST_COLS,
    MOST_ROWS,
    ErrorLocations,
    error_locations,
    heat_map,
    locations_text,
    never_written,
    wrong_elements,
)
from webnorm.lab.verify.deviations import OutputComparison
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Expected, ToleranceFactors

ALLOWED = ToleranceFactors(1e-6, 0.0, 0.0, 0.0, "test")


def untouched_elements(got: Array) -> ErrorLocations:
    """Return the elements of an output that were never written."""
    return error_locations(lambda part: never_written(got, part), len(got), got.size // max(len(got), 1))


def compared(got: Array, dtype: str = "float32") -> OutputComparison:
    """Return the comparison of an output whose answers are all 1."""
    answer = Expected(np.ones(got.shape), np.ones(1), np.zeros(1))
    return OutputComparison("y", got.astype(DTYPES[dtype]), answer, dtype, ALLOWED)


def poisoned(rows: int, cols: int, dtype: str) -> Array:
    """Return an output without writes."""
    size = rows * cols * DTYPES[dtype].itemsize
    return np.full(-(-size // 4), POISON).view(np.uint8)[:size].view(DTYPES[dtype]).reshape(rows, cols)


def test_a_tail_is_a_stripe_and_a_row_a_line() -> None:
    got = np.ones((40, 130))
    got[:, 128:] = 2.0
    got[17] = 1.5
    found = heat_map(compared(got))
    assert (found.row_step, found.col_step) == (2, 3)
    cells = np.array(found.cells)
    assert cells.shape == (20, 44)
    assert (cells[:, 42:] >= 5e5).all() and (cells[8] >= 4e5).all()
    cells[:, 42:], cells[8] = 0.0, 0.0
    assert not cells.any()


def test_a_map_is_bounded_and_knows_parts_of_rows() -> None:
    """Rows are compared in parts that do not align with cells."""
    got = np.ones((5003, 1009))
    got[4999, 1000] = 3.0
    found = heat_map(compared(got))
    cells = np.array(found.cells)
    assert cells.shape[0] <= MOST_ROWS and cells.shape[1] <= MOST_COLS
    assert np.argwhere(cells > 1).tolist() == [[4999 // found.row_step, 1000 // found.col_step]]


def test_an_output_without_rows_is_a_line() -> None:
    got = np.ones(200_003)
    got[[5, 150_000]] = 2.0
    found = heat_map(compared(got))
    assert (found.rows, found.cols) == (1, 200_003)
    assert np.flatnonzero(np.array(found.cells)[0] > 1).tolist() == [0, 150_000 // found.col_step]


@pytest.mark.parametrize("dtype", DTYPES)
def test_unwritten_elements_have_infinite_errors(dtype: str) -> None:
    got = np.ones((6, 20), DTYPES[dtype])
    got[2:4] = poisoned(6, 20, dtype)[2:4]
    found = heat_map(compared(got, dtype))
    assert np.isinf(np.array(found.cells)[2:4]).all() and not np.array(found.cells)[[0, 1, 4, 5]].any()
    left = untouched_elements(got)
    assert left.whole_rows.tolist() == [False, False, True, True, False, False]
    assert (left.count, left.first) == (40, (2, 0)) and not left.whole_cols.any()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_unwritten_columns(dtype: str) -> None:
    got = np.ones((7, 61), DTYPES[dtype])
    got[:, 60:] = poisoned(7, 61, dtype)[:, 60:]
    left = untouched_elements(got)
    assert np.flatnonzero(left.whole_cols).tolist() == [60] and left.count == 7
    assert never_written(got, slice(3, 5)).sum() == 2


def test_a_byte_like_the_poison_is_a_number() -> None:
    got = np.ones((4, 8), np.int8)
    got[1, 3] = poisoned(4, 8, "int8")[1, 3]
    assert untouched_elements(got).count == 0


def test_locations_of_wrong_elements() -> None:
    got = np.ones((5, 6))
    got[1:3, 4] = 0.0
    found = wrong_elements(compared(got))
    assert (found.count, found.first) == (2, (1, 4))
    assert np.flatnonzero(found.some_rows).tolist() == [1, 2] and not found.whole_rows.any()
    exact = replace(compared(np.ones((5, 6))), allowed=replace(ALLOWED, base=0.0))
    assert wrong_elements(exact).count == 0


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3], "3"),
        ([0, 1, 2, 7], "0 to 2, 7"),
        ([1, 5, 9, 13], "1, 5, ..., 13 (every 4th)"),
        (range(0, 100, 2), "0, 2, ..., 98 (every 2nd)"),
        ([at for at in range(100) if at % 8], "1 to 7 of every 8"),
        ([0, 2, 5, 9, 14, 20, 27], "0, 2, 5, 9, 14, 20 and more (7 in all)"),
    ],
)
def test_locations_as_text(numbers: Sequence[int], words: str) -> None:
    mask = np.zeros(100, bool)
    mask[list(numbers)] = True
    assert locations_text(mask) == words
