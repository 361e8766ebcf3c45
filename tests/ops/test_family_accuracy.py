"""The forward kernels of the norm family are accurate for rows with a large mean."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench.family_accuracy import MEANS, PROBLEMS, AccuracyProblem
from bench.numerics import DOCS
from webnorm.engines.catalog import DAWN, NATIVE, PORTABLE
from webnorm.gpu.device import Device
from webnorm.op.registry import OPS
from webnorm.ops.rows import HI_LO_TOLERANCE

# Formulas that subtract nothing, and overflow for none of these inputs.
SAFE = {"`rms_norm`", "`qk_norm`, RMSNorm", "`l2_norm`"}


def published(marker: str) -> list[list[str]]:
    """Return the cells of a table of the page, with its heading."""
    page = (DOCS / "norm-family.md").read_text(encoding="utf-8")
    table = page.split(f"<!-- {marker} -->")[1].split(f"<!-- end of {marker} -->")[0]
    return [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", table, re.M)]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_errors_stay_small_at_every_mean(problem: AccuracyProblem, device: Device) -> None:
    shaders = list(problem.accurate_shaders(device))
    kernels = {shader.variant.kernel.name for shader in shaders}
    assert kernels and "naive" not in kernels
    # Without subgroups, a software adapter has one invocation per row in `streaming`, which adds more terms.
    if "subgroups" in device.traits.features or not device.traits.software:
        assert problem.chosen(device.traits).kernel.name in kernels
    assert np.max([problem.errors(device, shader) for shader in shaders]) <= HI_LO_TOLERANCE
    # The short formulas that cancel or overflow show that these inputs are hard.
    assert np.isnan(problem.short_error(MEANS[-1])) == (problem.name not in SAFE)


def test_every_forward_op_is_measured() -> None:
    forward = {op.name for op in OPS.values() if not op.is_copy and not op.name.endswith("_backward")}
    assert {one.op for one in PROBLEMS} == forward


def test_the_tables_have_every_problem() -> None:
    names = [one.name for one in PROBLEMS]
    assert [row[0] for row in published("table")[1:]] == names, "stale: python -m bench.numerics --write"


def test_every_engine_is_accurate_in_the_table() -> None:
    heading, *rows = published("engine table")
    stale = "stale: python -m bench.numerics --engine all --write"
    assert heading[:3] == ["op", NATIVE, DAWN] and {*heading[1:]} >= {*PORTABLE}, stale
    assert [row[0] for row in rows] == [one.name for one in PROBLEMS], stale
    errors = np.array([row[1:] for row in rows], dtype=float)
    assert errors.shape == (len(PROBLEMS), len(heading) - 1)
    # A comparison with NaN is false.
    assert (errors <= HI_LO_TOLERANCE).all()
