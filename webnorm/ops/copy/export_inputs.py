"""The inputs of an export's test vectors, for ops on rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from webnorm.op.dtypes import Array
from webnorm.op.op import Op
from webnorm.ops.copy.problem import DISTRIBUTIONS, RowProblem

# Elements of x in a vector, about: a package is downloaded.
_ELEMENTS = 24_000


def export_inputs(op: Op, problem: RowProblem) -> Iterator[tuple[str, str, Array]]:
    """Yield name, description and x (rows, cols) in float64 of each vector."""
    cols = problem.cols
    rng = np.random.default_rng(problem.seed)
    several = max(3, min(37, _ELEMENTS // cols)) | 1
    yield (
        "normal",
        f"{several} rows of normal numbers: an odd number, so that the last workgroup is not full",
        rng.standard_normal((several, cols)),
    )
    largest = float(np.finfo(np.float32).max if problem.dtype != "float16" else np.finfo(np.float16).max)
    kinds = [draw(rng, replace(problem, rows=1)) for draw in DISTRIBUTIONS.values()]
    # Without a mean, a constant row gives the weights. Many of them lie on boundaries of a float8 type.
    constant = [
        np.full((1, cols), value) for value in ((0.0, 3.0, -1000.0) if op.constants["has_mean"] else (0.0,))
    ]
    held = [row for row in [*kinds, *constant] if np.abs(row).max() <= largest]
    yield (
        "mixed",
        "rows of unlike distributions: large means, outliers, small scales, constant rows",
        np.concatenate(held[:: -(-len(held) // max(4, _ELEMENTS // cols))]),
    )
    poisoned = rng.standard_normal((3, cols))
    poisoned[1, cols // 2] = np.nan
    yield "nan", "a NaN in the middle row: its neighbours must not see it", poisoned
    yield "one_row", "a single row", rng.standard_normal((1, cols))
