"""docs/ladder.md has the current WGSL, costs and errors; its times are from the date in the page."""

from __future__ import annotations

import re

import pytest

from bench.ladder import PAGE, RUNGS, UNMEASURED, costs, errors, rows_of, step, table_of, variant_of
from bench.numerics import between_markers
from testbed import KERNELS, needs
from webnorm.gpu.device import Device

# The allowed factor between adapters, whose compilers contract and order additions differently.
FACTOR = 4.0
# The columns that depend on the subgroup size.
BARRIERS, OPERATIONS = 2, 3


def cells_of(rung: str) -> list[str]:
    row = rows_of(table_of(PAGE.read_text(encoding="utf-8")))[rung]
    return [cell.strip() for cell in row.strip("|").split("|")[1:]]


def test_the_page_has_every_rung_in_order() -> None:
    page = PAGE.read_text(encoding="utf-8")
    ladder = [kernel.name for kernel in KERNELS if kernel.op.name == "layer_norm"]
    marked = re.findall(r"^<!-- end of (\w+) -->$", page, re.M)
    assert [*RUNGS] == ladder == [*rows_of(table_of(page))] and ["table", *RUNGS] == marked


@pytest.mark.parametrize("rung", RUNGS)
def test_each_step_is_fresh(rung: str) -> None:
    """The page has the current WGSL, and the table's figures of the rung and of the previous rung."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = step(rung, rows_of(table_of(page)))
    assert between_markers(PAGE, rung, fresh) == page, "stale: python -m bench.ladder --write --steps"


def test_a_step_has_the_figures_of_the_rung_below() -> None:
    rows = {rung: f"| `{rung}` | figures of {rung} |" for rung in RUNGS}
    first, second = step("naive", rows), step("one_pass", rows)
    assert first.count("figures of") == 1 and "figures of naive |\n\n```wgsl" in first
    assert "figures of naive |\n| `one_pass` | figures of one_pass |\n\n```wgsl" in second
    assert second.startswith("*Shares a row among the invocations of a workgroup")


def test_a_share_is_a_number_or_not_measured() -> None:
    shares = {rung: cells_of(rung)[-1] for rung in RUNGS}
    assert all(share == UNMEASURED or share.isdigit() for share in shares.values()), shares


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rung", RUNGS)
def test_costs_and_errors_are_fresh(rung: str, device: Device) -> None:
    variant = variant_of(rung)
    uses_subgroups = "subgroups" in variant.kernel.features
    needs(device, {"subgroups"} if uses_subgroups else ())
    *written, _ = cells_of(rung)
    found = costs(device, rung)
    size = re.search(r"subgroups of (\d+), \d{4}-\d\d-\d\d:", PAGE.read_text())
    assert size
    if uses_subgroups and int(size[1]) != device.subgroup_size:
        for column in (BARRIERS, OPERATIONS):
            found[column] = written[column]
    assert written[: len(found)] == found, "stale: python -m bench.ladder --write"
    for there, here in zip(map(float, written[len(found) :]), map(float, errors(device, rung)), strict=True):
        assert here / FACTOR <= there <= here * FACTOR, "stale: python -m bench.ladder --write"
