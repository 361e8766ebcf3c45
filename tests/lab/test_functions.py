"""bench, check and compare from Python."""

from __future__ import annotations

import inspect
import json
import math
import re
import typing
from pathlib import Path

import numpy as np
import pytest

import broken
import webnorm
from webnorm import WebnormError
from webnorm.gpu.device import Device
from webnorm.lab.report.findings import Findings
from webnorm.lab.results.result import Result
from webnorm.lab.run.bench import Progress


@pytest.mark.slow
def test_a_benchmark_gives_rows_a_file_and_a_page(tmp_path: Path, device: Device) -> None:
    events: list[Progress] = []
    found = webnorm.bench(
        "naive,two_*", rows=np.int64(8), cols=[48, 64], budget=0.1, adapter=0, progress=events.append
    )
    assert found.ok and {row["kernel"] for row in found.rows()} == {"copy", "naive", "two_pass"}
    assert {row["cols"] for row in found.rows()} == {48, 64}
    assert all(
        isinstance(cell, str | int | float | bool | None) for row in found.rows() for cell in row.values()
    )
    assert [winner.problem.cols for winner in found.best()] == [48, 64]
    shares = [progress.share for progress in events]
    assert shares[0] < 0.5 < shares[-1] <= 1 and any("round" in str(one) for one in events)
    found.save(tmp_path / "found.json")
    same = webnorm.compare(tmp_path / "found.json", found)
    assert {row["verdict"] for row in same.rows()} == {"SAME"} and "SAME" in repr(same)
    assert "pass" in repr(found) and str(found.report.device["adapter"]) in repr(found)
    html = found._repr_html_()
    constants = re.findall("<td[^>]*>[^<]*[a-z]=[^<]*", html)
    assert not constants, "constants are the default ones, and ranks that are shared have a = of their own"
    assert "threads_per_row=" in Findings(found.report)._repr_html_()
    assert html.count("<table>") == 2 and "two_pass" in html and "SAME" in same._repr_html_()
    assert html.count("<svg") == 1 and html.rstrip().endswith("</svg>")
    found.plot(tmp_path / "found.png")
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_a_check_reports_errors(tmp_path: Path, device: Device) -> None:
    root = broken.write(tmp_path / "mine", "wrong", "unparsable")
    seen: list[Result] = []
    found = webnorm.check(
        ["wrong", "unparsable", "naive"], cases="rows-1", wgsl=[root], seed=1, progress=seen.append
    )
    assert not found.ok and list(found.results) == seen
    verdicts = {row["kernel"]: row["status"] for row in found.rows()}
    assert verdicts == {"wrong": "fail", "unparsable": "error", "naive": "pass"}
    (mistake,) = [row["place"] for row in found.rows() if row["place"]]
    assert str(mistake).startswith(str(root / "layer_norm" / "unparsable.wgsl:"))
    webnorm.check("naive", cases="rows-1").save(tmp_path / "right.json")
    assert json.loads((tmp_path / "right.json").read_text())["complete"] is True


@pytest.mark.slow
def test_a_check_takes_an_array(tmp_path: Path, device: Device) -> None:
    x = np.arange(48, dtype=np.float16).reshape(2, 3, 8)
    np.save(tmp_path / "x.npy", x)
    for given, name in ((x, "input"), (x[::-1], "input"), (str(tmp_path / "x.npy"), "x.npy")):
        (result,) = webnorm.check("naive", input=given).results
        assert (result.status, result.case, result.problem.dtype) == ("pass", name, "float16")
        assert (result.problem.rows, result.problem.cols) == (6, 8)
    for bad, said in (
        (x.astype(np.float64), r"dtype is float64; expected .*: cast it, as with x.astype\(np.float32\)"),
        (np.ones((), np.float32), r"input: shape is \(\); the array must have at least one dimension"),
        ([[1.0]], r"input is \[\[1.0\]\]; it must be a NumPy array or the path of an .npy file"),
    ):
        with pytest.raises(WebnormError, match=said):
            webnorm.check("naive", input=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kernels": "registres"}, "unknown kernel 'registres'; did you mean 'registers'"),
        ({"op": "layernorm"}, "unknown op 'layernorm'; did you mean 'layer_norm'"),
        ({"rows": "many"}, "rows is 'many'; expected integers"),
        ({"cols": 1.5}, "cols is 1.5; it must be an integer, several integers, or a string"),
        ({"constants": {"thread": 8}}, "unknown constant 'thread'"),
        ({"preset": "h200", "rows": 8}, "preset sets its own op and shapes"),
        ({"dtype": "half"}, "unknown dtype 'half'"),
        ({"options": "residul"}, "unknown option 'residul'; did you mean 'residual'"),
        ({"budget": "0.1"}, "budget is '0.1'; expected seconds"),
        ({"budget": 0}, "budget is 0; expected seconds from 0.01 to 1000000"),
        ({"budget": math.nan}, "budget is nan; expected seconds from 0.01"),
        ({"time_limit": -5}, "time_limit is -5; expected seconds from 0.1 to 1000000"),
    ],
)
def test_mistakes_are_errors_before_anything_runs(given: dict[str, typing.Any], message: str) -> None:
    with pytest.raises(WebnormError, match=message):
        webnorm.bench(**given)


def test_invalid_reports_are_errors(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="the report is 3; it must be a result of bench"):
        webnorm.compare(3, 3)  # type: ignore[arg-type]
    with pytest.raises(WebnormError, match="cannot read"):
        webnorm.compare(tmp_path / "none.json", tmp_path / "none.json")


def test_no_lab_function_returns_any() -> None:
    """Scripts get types to rely on."""
    for public in (webnorm.bench, webnorm.check, webnorm.compare):
        assert "Any" not in str(typing.get_type_hints(public)["return"])
    for kind in (webnorm.Findings, webnorm.Changes):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            hints = typing.get_type_hints(member)
            assert name.startswith("__") or "Any" not in str(hints["return"])
