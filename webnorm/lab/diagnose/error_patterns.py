"""What the wrong elements of an output have in common: a place, a sign or size, the last digits."""

from __future__ import annotations

import numpy as np

from webnorm.lab.diagnose.heat_map import ErrorLocations, locations_text, short_text
from webnorm.lab.verify.deviations import OutputComparison, rounded_to
from webnorm.op.blocks import map_row_blocks
from webnorm.op.dtypes import Array, finfo

# The share of the elements of some rows and some columns that tells these rows and columns.
_FILLED = 0.9
# Errors of so many times the tolerance are of the last digits.
_DIGITS = 50.0
# Elements whose answers are looked at all at once.
_MOST_SORTED = 1 << 22


def location_pattern(one: OutputComparison, at: ErrorLocations) -> str | None:
    """Where an output is wrong, if that is not everywhere."""
    what, size = _what(one, at), one.got.size
    if one.got.ndim == 1:
        if at.some_rows.all():
            return None
        elements = element_groups("element", at.some_rows)
        return f"{one.name} {what} only in {elements} of {size}{_tail(at.some_rows)}"
    words = []
    if not at.some_rows.all():
        words.append(f"{element_groups('row', at.some_rows)} of {one.rows}")
    # Columns here and there are not what the wrong ones have in common.
    filled = at.count >= _FILLED * at.some_rows.sum() * at.some_cols.sum() and short_text(at.some_cols)
    if not at.some_cols.all() and filled:
        words.append(f"{element_groups('column', at.some_cols)} of {one.cols}{_tail(at.some_cols)}")
    if not filled and (values := _values(one, at)):
        return values
    if not words:
        return None
    return f"{one.name} {what} only in {' and '.join(words)} ({share_text(at.count, size)})"


def wrong_everywhere(one: OutputComparison, at: ErrorLocations) -> str:
    """How much of an output is wrong that has no such place."""
    where = "in all rows and columns" if at.some_rows.all() and at.some_cols.all() else "here and there"
    return f"{one.name} {_what(one, at)} in {share_text(at.count, one.got.size)}, {where}"


def _what(one: OutputComparison, at: ErrorLocations) -> str:
    """What is the matter with the wrong elements."""
    broken = sum(map_row_blocks(lambda part: int(np.isinf(one.of(part).ratio).sum()), one.rows, one.cols))
    return "is NaN or Inf" if broken == at.count else "is wrong"


def _tail(mask: Array) -> str:
    """Whether these are the last ones and no others."""
    first = int(np.flatnonzero(mask)[0])
    return ", the last: fits a tail" if first and mask[first:].all() else ""


def _values(one: OutputComparison, at: ErrorLocations) -> str | None:
    """Which answers are missed, where their sign or size tells."""

    def of(part: slice) -> tuple[Array, Array]:
        found = one.of(part)
        bad = found.ratio > 1.0
        return found.value[bad], found.value[~bad]

    if at.count > _FILLED * one.got.size or one.got.size > _MOST_SORTED:
        return None
    bad, good = (np.concatenate(parts) for parts in zip(*map_row_blocks(of, one.rows, one.cols), strict=True))
    tests = (
        ("negative", bad < 0, good < 0),
        ("positive", bad > 0, good > 0),
        (f"{np.abs(bad).min():.4g} or more in size", np.abs(bad) > 0, np.abs(good) >= np.abs(bad).min()),
        (f"{np.abs(bad).max():.4g} or less in size", np.abs(bad) >= 0, np.abs(good) <= np.abs(bad).max()),
    )
    for words, of_bad, of_good in tests:
        if of_bad.all() and of_good.sum() <= (1.0 - _FILLED) * bad.size and not of_good.all():
            return (
                f"{one.name} is wrong only where the answer is {words} ({share_text(at.count, one.got.size)})"
            )
    return None


def last_digits_pattern(one: OutputComparison) -> str | None:
    """How far an output is off that is right but for its last digits."""

    def of(part: slice) -> tuple[float, bool, bool]:
        if one.dtype != "float32":
            return _narrow_digits(one, part)
        return float(one.of(part).ratio.max(initial=0.0)), True, False

    ratios, near, cut = zip(*map_row_blocks(of, one.rows, one.cols), strict=True)
    if not all(near) or max(ratios) > _DIGITS:
        return None
    if all(cut):
        return f"{one.name} fits values that are cut off instead of rounded to {one.dtype}"
    if one.dtype != "float32":
        return f"{one.name} is wrong in the last digit of {one.dtype} alone"
    return f"only the last digits of {one.name} are wrong, by at most {max(ratios):.3g} times the tolerance"


def _narrow_digits(one: OutputComparison, rows: slice) -> tuple[float, bool, bool]:
    """No ratio, but whether some rows are within a unit in the last place of a narrow type, and whether they
    are all nearer to 0 than the answer.
    """
    found = one.of(rows)
    if not np.isfinite(found.got).all():
        return 0.0, False, False
    nearest = rounded_to(found.value, one.dtype)
    unit = np.ones(1)
    if one.dtype != "int8":
        limits = finfo(one.dtype)
        unit = float(limits.eps) * np.abs(nearest) + float(limits.smallest_subnormal)
    near = bool((np.abs(found.got - nearest) <= unit).all())
    cut = bool((np.abs(found.got) <= np.abs(found.value) + found.limit).all())
    return 0.0, near, near and cut


def share_text(count: int, size: int) -> str:
    """Such as "3 of 7 elements"."""
    return f"{count} of {size} elements"


def element_groups(word: str, mask: Array) -> str:
    """Such as "rows 3 to 5"."""
    return f"{word}{'s' if mask.sum() > 1 else ''} {locations_text(mask)}"
