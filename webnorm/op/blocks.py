"""Large arrays in parts, on all cores: NumPy releases the interpreter's lock in its loops.

Large arrays take minutes on few cores, so a callback reports the progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

# Bytes of float64 in a part. The temporaries of a few steps stay in a core's cache, and a step takes longer
# than switching the interpreter's lock. It is the fastest value from 2^17 to 2^22, 1.6 times as fast as 2^22.
_PART_BYTES = 1 << 19
# Elements of one stream of random numbers.
_STREAM_ELEMENTS = 1 << 20
Part = TypeVar("Part")


_callback: Callable[[], None] | None = None


def on_progress(callback: Callable[[], None]) -> None:
    """Set a function to call after every part, on the thread that requested the work."""
    global _callback
    _callback = callback


def _done(work: Callable[..., Part], *each: Iterable[Any]) -> list[Part]:
    """Return the results of `work`, in order.

    The progress callback runs as parts finish, in any order, since the first part may be the last to finish.
    """
    parts = [*zip(*each, strict=False)]
    if len(parts) == 1:
        # Starting a thread takes longer than the work on a small array.
        found = [work(*parts[0])]
        if _callback:
            _callback()
        return found
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(work, *one) for one in parts]
        try:
            for future in as_completed(futures):
                future.result()
                if _callback:
                    _callback()
        finally:
            for future in futures:
                future.cancel()
        return [future.result() for future in futures]


def map_row_blocks(work: Callable[[slice], Part], count: int, width: int) -> list[Part]:
    """Return the results of `work` for parts of `count` rows of a width, in order."""
    at_once = max(1, _PART_BYTES // (8 * max(width, 1)))
    return _done(work, (slice(first, first + at_once) for first in range(0, count, at_once)))


def converted(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return `array.astype(dtype)`, computed in parts."""
    result = np.empty(array.shape, dtype)
    source, target = array.reshape(-1), result.reshape(-1)

    def convert(part: slice) -> None:
        target[part] = source[part]

    map_row_blocks(convert, array.size, 1)
    return result


def standard_normal(rng: np.random.Generator, shape: Sequence[int]) -> npt.NDArray[np.float64]:
    """Draw normal numbers that do not depend on the number of cores.

    `rng` draws the first 2^20 numbers, and each of its children the next 2^20.
    """
    drawn = np.empty(shape)
    flat = drawn.reshape(-1)
    starts = range(0, flat.size, _STREAM_ELEMENTS)
    streams = [rng, *rng.spawn(max(0, len(starts) - 1))]

    def draw(start: int, stream: np.random.Generator) -> None:
        stream.standard_normal(out=flat[start : start + _STREAM_ELEMENTS])

    _done(draw, starts, streams)
    return drawn
