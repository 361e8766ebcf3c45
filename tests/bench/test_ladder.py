"""docs/ladder.md holds the code's own bodies, costs and errors; its times are of the day that it names."""

from __future__ import annotations

import re

import pytest

from bench.ladder import LESSONS, PAGE, RUNGS, body, costs, errors, variant_of
from bench.numerics import between_markers
from testbed import needs
from webnorm.gpu.device import Device

# Between adapters, whose compilers contract and order additions in their own way.
FACTOR = 4.0
# The columns that subgroups decide.
BARRIERS, OPERATIONS = 2, 3


def cells_of(rung: str) -> list[str]:
    (row,) = re.findall(rf"^\| `{rung}` \| (.*) \|$", PAGE.read_text(), re.M)
    return [cell.strip() for cell in row.split("|")]


@pytest.mark.parametrize("rung", LESSONS)
def test_the_body_is_fresh(rung: str) -> None:
    page = PAGE.read_text()
    assert between_markers(PAGE, rung, body(rung)) == page, "stale: python -m bench.ladder --write"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rung", RUNGS)
def test_costs_and_errors_are_fresh(rung: str, device: Device) -> None:
    variant = variant_of(rung)
    uses_subgroups = "subgroups" in variant.kernel.features
    needs(device, {"subgroups"} if uses_subgroups else ())
    *told, _ = cells_of(rung)
    found = costs(device, rung)
    size = re.search(r"subgroups of (\d+), \d{4}-\d\d-\d\d:", PAGE.read_text())
    assert size
    if uses_subgroups and int(size[1]) != device.subgroup_size:
        for column in (BARRIERS, OPERATIONS):
            found[column] = told[column]
    assert told[: len(found)] == found, "stale: python -m bench.ladder --write"
    for there, here in zip(map(float, told[len(found) :]), map(float, errors(device, rung)), strict=True):
        assert here / FACTOR <= there <= here * FACTOR, "stale: python -m bench.ladder --write"
