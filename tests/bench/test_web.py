"""The browser record: tables, packages, and one run of a page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.web import __main__ as web
from bench.web import hosts, models, packages, plan, tables
from bench.web.plot import plot
from headless import needs_browser
from pages import ROOT
from webnorm.errors import WebnormError
from webnorm.web.folder import write_folder

RESULTS = ROOT / "bench" / "results"


def line(library: str, errors: dict[str, Any], **more: Any) -> dict[str, Any]:
    (rows, cols), *_ = plan.SHAPES
    about = {"library": library, "op": "layer_norm", "dtype": "float32", "rows": rows, "cols": cols}
    return {**about, "errors": errors, **more}


@pytest.fixture(params=["web", "web_h100"])
def name(request: pytest.FixtureRequest) -> str:
    """Return a committed record."""
    found: str = request.param
    return found


def kept(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_a_table_has_errors_a_nan_and_a_reason() -> None:
    lines = [
        line("webnorm", {"0": 7e-7, "1000000": 2.1e-6}),
        line("onnxruntime-web", {"0": 7e-7, "1000000": "NaN"}),
        line("tinygrad", {}, why="needs shader-f16"),
    ]
    assert tables.accuracy_table(lines).splitlines() == [
        "| mean / sd | 0 | 1e6 |",
        "| --- | ---: | ---: |",
        "| webnorm | 7.0e-07 | 2.1e-06 |",
        "| onnxruntime-web | 7.0e-07 | **NaN** |",
        "| tinygrad | - | - |",
        "",
        "- tinygrad: needs shader-f16",
    ]


def test_an_unproved_time_is_replaced_by_its_reason() -> None:
    text = tables.times_table([line("tfjs", {}, dispatches=8, wall_ns=2000.0, why_no_time="another answer")])
    assert "| tfjs | 8 | - | - | 2.0 | - |" in text and "- tfjs: another answer" in text


def test_the_committed_tables_match_the_record(name: str) -> None:
    data = kept(name)
    assert (RESULTS / f"{name}.md").read_text(encoding="utf-8") == tables.to_markdown(data, f"{name}.svg")
    assert (RESULTS / f"{name}.csv").read_text(encoding="utf-8") == tables.to_csv(data)


def test_the_page_has_the_record(name: str) -> None:
    assert tables.block(name, kept(name)) in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_picture_marks_a_nan(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the test needs matplotlib")
    data = {"accuracy": [line("webnorm", {"0": 1e-7}), line("onnxruntime-web", {"1000000": "NaN"})]}
    assert plot(data, tmp_path / "web.svg")
    assert "NaN" in (tmp_path / "web.svg").read_text(encoding="utf-8")


def test_a_page_that_requests_another_server_is_not_recorded() -> None:
    with pytest.raises(WebnormError, match=r"requested http://example\.com/, which is not on this machine"):
        hosts._checked({"outside": ["http://example.com/"], "found": []})


def test_without_npm_the_error_names_a_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(WebnormError, match=r"^npm is not installed: .*--packages FOLDER$"):
        packages.install()
    assert list(tmp_path.iterdir()) == []


def test_packages_are_pinned_by_digest_and_name_no_registry() -> None:
    lock = (Path(packages.__file__).parent / "npm" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    own = [entry for name, entry in json.loads(lock)["packages"].items() if name]
    assert own and all(entry["integrity"].startswith("sha512-") for entry in own)


@pytest.mark.slow
@pytest.mark.xdist_group("npm")
@needs_browser
def test_a_page_finds_webnorm_exact_where_onnxruntime_web_is_not(tmp_path: Path) -> None:
    if missing := models.available():
        pytest.skip(missing)
    try:
        node_modules = packages.install()
    except WebnormError as error:
        pytest.skip(str(error))
    part = {
        "kind": "accuracy",
        "op": "layer_norm",
        "dtype": "float32",
        "rows": 4,
        "cols": 256,
        "means": [0, 1000],
    }
    files = plan.folder([part], ("webnorm", "onnxruntime-web"), node_modules, lambda _: None)
    write_folder(files, tmp_path / "site")
    with hosts.in_a_browser(None) as visit:
        own, ort = visit(tmp_path / "site", 0)["found"]
    assert own["errors"]["0"] < 5e-6 and own["errors"]["1000"] < 5e-6
    assert ort["errors"]["0"] < 5e-6 and ort["errors"]["1000"] > 0.01


def test_help_lists_the_options(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench.web", "--help"])
    with pytest.raises(SystemExit):
        web.arguments()
    output = capsys.readouterr().out
    assert all(flag in output for flag in ("--accuracy", "--dawn", "--packages", "--page"))
