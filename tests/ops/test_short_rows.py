"""The default constants of kernels that give each row a workgroup, for short rows on software adapters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from webnorm.choice.defaults import default_variant
from webnorm.kernels.headers.library import own_kernels
from webnorm.kernels.headers.traits import BROWSER
from webnorm.op.registry import OPS

SWIFTSHADER = replace(BROWSER, software=True)


def short_rows(op: str) -> Any:
    """Return a problem of 64 rows of 16 elements."""
    sizes = {"rows": 64, "batch": 64, "cols": 16, "spatial": 16, "dim": 16}
    return OPS[op].problem(*(sizes.get(name, 1) for name in OPS[op].problem_type.SIZES))


@pytest.mark.parametrize("op", [op.name for op in OPS.values() if not op.is_copy])
def test_a_short_row_has_a_small_workgroup(op: str) -> None:
    """SwiftShader took 1 ms for a workgroup of 256, so a check of 12,000 rows ran into its time limit."""
    for kernel in own_kernels(op):
        constants = default_variant(kernel, short_rows(op), SWIFTSHADER).constants
        if "threads_per_row" in constants:
            assert constants["threads_per_row"] <= 32, kernel.name
