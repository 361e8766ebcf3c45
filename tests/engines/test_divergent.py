"""Ten ops whose kernel `divergent` is right in one engine, and wrong or refused in another.

`divergent/expected.toml` contains the verdict of each engine. Each op also has a kernel `portable`, which is
right in every engine.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import webnorm
from pages import ROOT
from webnorm.gpu.device import Device
from webnorm.lab.results.result import Result

FOLDER = Path(__file__).parent / "divergent"
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text(encoding="utf-8"))
OPS = sorted(path.parent.name for path in FOLDER.glob("*/op.py"))
ENGINES = {"wgpu", "dawn", "node", "chromium", "firefox", "deno"}
VERDICTS = {"pass", "fail", "refused", "skip"}
# The driver of the column wgpu.
DRIVER = {"vendor": "llvmpipe", "backend": "Vulkan", "subgroup_size": 8}


@pytest.fixture(params=OPS)
def op(request: pytest.FixtureRequest, device: Device) -> Iterator[str]:
    webnorm.load_op(FOLDER / request.param)
    yield request.param


def verdict(op: str, kernel: str, cases: str | None = None) -> str:
    """Return the verdict of this process's WebGPU on a kernel, as in `expected.toml`."""
    return verdict_of(webnorm.check(kernel, op=op, cases=cases).results)


def verdict_of(found: Iterable[Result]) -> str:
    """Return the verdict on a kernel's results."""
    statuses = {one.status for one in found}
    assert statuses
    for status, name in (("error", "refused"), ("fail", "fail"), ("pass", "pass")):
        if status in statuses:
            return name
    return "skip"


def native_verdict(op: str, device: Device) -> str:
    """Return the verdict that `expected.toml` has for wgpu. Skip on another driver than the table's."""
    described = device.description()
    own = {key: described.get(key) for key in DRIVER}
    if own != DRIVER:
        pytest.skip(f"the table has the verdicts of {DRIVER}, not of {own}")
    return str(EXPECTED[op]["wgpu"])


def test_the_table_separates_engines_by_each_op() -> None:
    assert sorted(EXPECTED) == OPS and len(OPS) == 10
    for op, row in EXPECTED.items():
        assert {*row} == ENGINES and {*row.values()} <= VERDICTS, op
        assert "pass" in row.values() and {"fail", "refused"} & {*row.values()}, op


def test_the_page_has_the_same_table() -> None:
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(#.*?\) \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|", page, re.M)
    columns = (("wgpu",), ("deno",), ("firefox",), ("chromium", "node", "dawn"))
    shown = {
        op: {engine: verdict for engines, verdict in zip(columns, row, strict=True) for engine in engines}
        for op, *row in rows
    }
    assert shown == EXPECTED


def test_wgpu_is_as_in_the_table(op: str, device: Device) -> None:
    assert verdict(op, "divergent", f"{op}-divergence") == native_verdict(op, device)


def test_the_portable_kernel_is_right(op: str) -> None:
    assert verdict(op, "portable", f"{op}-divergence") == "pass"


@pytest.mark.slow
def test_wgpu_is_as_in_the_table_in_all_cases(op: str, device: Device) -> None:
    assert verdict(op, "divergent") == native_verdict(op, device)


@pytest.mark.slow
def test_the_portable_kernel_is_right_in_all_cases(op: str) -> None:
    assert verdict(op, "portable") == "pass"
