"""Large arrays in parts, on all cores: NumPy lets go of the interpreter's lock in its loops.

Work on a large array takes minutes where cores are few. Who has to know that it goes on is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

# Bytes of float64 in a part: the temporaries of a few steps stay in a core's cache, and a step takes longer
# than handing on the interpreter's lock. Of 2^17 to 2^22 the fastest, 1.6 times as fast as 2^22.
_PART_BYTES = 1 << 19
# Elements of one stream of random numbers.
_STREAM_ELEMENTS = 1 << 20
Part = TypeVar("Part")


_told: Callable[[], None] | None = None


def on_progress(told: Callable[[], None]) -> None:
    """Have a function called after every part, on the thread that asked for the work."""
    global _told
    _told = told


def _done(work: Callable[..., Part], *each: Iterable[Any]) -> list[Part]:
    """What `work` gives for each, in order; told is whoever is done, since the first may be the last."""
    parts = [*zip(*each, strict=False)]
    if len(parts) == 1:
        # To start a thread takes longer than a small array does.
        found = [work(*parts[0])]
        if _told:
            _told()
        return found
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(work, *one) for one in parts]
        try:
            for future in as_completed(futures):
                future.result()
                if _told:
                    _told()
        finally:
            for future in futures:
                future.cancel()
        return [future.result() for future in futures]


def map_row_blocks(work: Callable[[slice], Part], count: int, width: int) -> list[Part]:
    """What `work` gives for each part of so many rows of a width, in order."""
    at_once = max(1, _PART_BYTES // (8 * max(width, 1)))
    return _done(work, (slice(first, first + at_once) for first in range(0, count, at_once)))


def converted(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """`array.astype(dtype)`."""
    result = np.empty(array.shape, dtype)
    source, target = array.reshape(-1), result.reshape(-1)

    def convert(part: slice) -> None:
        target[part] = source[part]

    map_row_blocks(convert, array.size, 1)
    return result


def standard_normal(rng: np.random.Generator, shape: Sequence[int]) -> npt.NDArray[np.float64]:
    """Normal numbers, the same for any number of cores: the first 2^20 are those that `rng` gives, each 2^20
    after them those of a child of it.
    """
    drawn = np.empty(shape)
    flat = drawn.reshape(-1)
    starts = range(0, flat.size, _STREAM_ELEMENTS)
    streams = [rng, *rng.spawn(max(0, len(starts) - 1))]

    def draw(start: int, stream: np.random.Generator) -> None:
        stream.standard_normal(out=flat[start : start + _STREAM_ELEMENTS])

    _done(draw, starts, streams)
    return drawn
