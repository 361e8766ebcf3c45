"""Inputs that a reference reads completely.

A kernel may read only a part of a table that indices select from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from webnorm.errors import WebnormError
from webnorm.op.dtypes import Array

# Elements of an input that are changed one at a time.
_MOST_CHANGED = 64


def wholly_read(
    reference: Callable[[Mapping[str, Array]], Sequence[Array]],
    arrays: Mapping[str, Array],
    others: Mapping[str, Array],
) -> set[str]:
    """Return the inputs in which every changed element changes an output.

    New values come from another draw.
    """
    usual = reference(arrays)

    def changes(name: str, at: int) -> bool:
        changed = arrays[name].copy()
        changed.flat[at] = others[name].flat[at]
        try:
            found = reference({**arrays, name: changed})
        except WebnormError:
            return False
        return not all(
            np.array_equal(one, own, equal_nan=True) for one, own in zip(found, usual, strict=True)
        )

    def tried(name: str) -> list[int]:
        differing = np.flatnonzero(arrays[name] != others[name])
        chosen = np.linspace(0, len(differing) - 1, min(len(differing), _MOST_CHANGED)).astype(int)
        return [int(at) for at in differing[chosen]]

    return {name for name in arrays if all(changes(name, at) for at in tried(name))}
