"""The script that records the sample of open results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.open_results import send_visits
from webnorm.engines.catalog import engine_fix, find_engine
from webnorm.errors import WebnormError
from webnorm.web.collection.visit_store import visits
from webnorm.web.folder import LAB_INDEX
from webnorm.web.lab_site import LAB_PAGE
from webnorm.web.pages import page_files

SELECTION = {"op": "layer_norm", "cols": 1024, "dtype": "float32", "rows": 8, "kernels": ["naive"]}


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("browser", ["chromium", "firefox"])
def test_a_browser_runs_the_lab_and_sends_its_results(browser: str, lab_folder: Path, tmp_path: Path) -> None:
    if (fix := engine_fix(browser)) is not None:
        pytest.skip(fix.missing)
    engine = find_engine(browser)
    listed = json.loads((lab_folder / LAB_INDEX).read_text())["files"]
    files = {name: (lab_folder / name).read_bytes() for name in (LAB_INDEX, *listed)}
    lab = {**files, **page_files("lab", LAB_PAGE)}
    store = tmp_path / "visits.sqlite"
    send_visits(store, [engine], lab, [SELECTION])
    (visit,) = visits(store)
    content = json.loads(visit.content)
    assert content["device"]["driver"].startswith({"chromium": "Chrome ", "firefox": "Firefox "}[browser])
    assert {one["kernel"] for one in content["results"] if one["op"] == "layer_norm"} == {"naive"}
    (tmp_path / "other").mkdir()
    with pytest.raises(WebnormError, match=f"{engine}: failed: cols is 7; expected one of"):
        send_visits(tmp_path / "other" / "visits.sqlite", [engine], lab, [{**SELECTION, "cols": 7}])
