"""webnorm's pages in Firefox, started without a driver. Its WebGPU and its layout differ from Chromium's.

The page posts its report, as for `webnorm verify --engine firefox`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packages import Export

import tiers
from patience import HANG_S
from webnorm.engines.catalog import engine_fix, find_engine
from webnorm.web.browser.engine_visits import EngineVisitor
from webnorm.web.folder import PAGE, write_folder
from webnorm.web.pages import page_files

FIX = engine_fix("firefox")
if FIX is not None:
    tiers.excuse("browser", "firefox", reason=FIX.missing)
# All these tests run in one process, so that no two browsers start at once.
pytestmark = [
    pytest.mark.skipif(FIX is not None, reason=FIX.missing if FIX else ""),
    pytest.mark.xdist_group("firefox"),
]
NEEDS_SUBGROUPS = "needs the feature subgroups, which the adapter lacks"
# Two cards with tables; the script posts the distances from the sides of a card to the sides of its table.
CARD = """<!doctype html>
<meta charset="utf-8">
<link rel="stylesheet" href="page/style.css">
<script src="card.js" type="module"></script>
<article class="card stack" id="grid"></article>
<article class="card" id="block"></article>
"""
MEASURE = """import { row, table } from "./page/table.js";
const columns = [{ name: "Kernel" }, { name: "Median", number: true }];
const found = {};
for (const card of document.querySelectorAll(".card")) {
  card.append(table(columns, [row(columns, ["naive", "1 ms"])], { bleed: true }));
  const [outer, inner] = [card, card.querySelector("table")].map((one) => one.getBoundingClientRect());
  found[card.id] = [inner.left - outer.left, outer.right - inner.right].map(Math.round);
}
window.webnormReport = found;
"""


def visit(folder: Path, query: str = "", page: str = PAGE) -> Any:
    """Return the report of a page, which must log no errors."""
    found = EngineVisitor(find_engine("firefox"), HANG_S).visit(folder, query, page=page)
    assert found.remarks == ()
    tiers.meet("browser", "firefox")
    return found.report


@pytest.mark.vulkan
def test_a_package_is_checked_and_timed(tmp_path: Path) -> None:
    folder = Export("layer_norm", (64,), "float16", ("residual",)).write(tmp_path / "package")
    report = visit(folder)
    assert report["error"] is None
    assert "Firefox/" in report["engine"]
    found = {one["name"]: one for one in report["shaders"]}
    assert len(found) == 3
    for shader in found.values():
        lacks = "subgroups" not in report["features"] and "subgroups" in shader["name"]
        assert shader["verdict"] == ("skip" if lacks else "pass"), shader
        assert shader["skipped"] == (NEEDS_SUBGROUPS if lacks else None)
        assert lacks or shader["timing"]["gbps"] > 0
    # Without subgroups, WebGPU reports the bounds of all devices as sizes.
    sized = report["adapter"]["subgroup_max_size"] is not None
    assert sized == ("subgroups" in report["features"])


@pytest.mark.vulkan
@pytest.mark.slow
def test_the_lab_runs_the_ladder(lab_folder: Path) -> None:
    report = visit(lab_folder, "?run=1&op=layer_norm&cols=256&dtype=float32&rows=64", "index.html")
    assert "error" not in report
    assert report["device"]["driver"].startswith("Firefox ")
    statuses = {(one["op"], one["kernel"]): one["status"] for one in report["results"]}
    assert {op for op, _ in statuses} == {"copy", "layer_norm"}
    for (_, kernel), status in statuses.items():
        lacks = "subgroups" not in report["device"]["features"]
        assert status == ("skip" if lacks and kernel in ("welford_subgroup", "row_in_registers") else "pass")
    skipped = {one["reason"] for one in report["results"] if one["status"] == "skip"}
    assert skipped <= {NEEDS_SUBGROUPS}


@pytest.mark.slow
def test_a_table_is_as_wide_as_its_card(tmp_path: Path) -> None:
    files = {**page_files("lab"), PAGE: CARD.encode(), "card.js": MEASURE.encode()}
    write_folder(files, tmp_path / "page")
    # The border of a card is one pixel wide.
    assert visit(tmp_path / "page") == {"grid": [1, 1], "block": [1, 1]}
