"""The summary of a store of visits, and the folder of its page."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test_collect import RESULT, VISIT

from commands import webnorm
from pages import ROOT
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.web.collection import visit_summary
from webnorm.web.collection.collector import ORIGIN, parse_visit
from webnorm.web.collection.visit_store import StoredVisit, VisitStore
from webnorm.web.collection.visit_summary import COLUMNS, summarized
from webnorm.web.collection.visits_page import data_text, visits_page
from webnorm.web.folder import VISITS

HOSTILE = "<img src=x onerror=alert(1)>"
COPY = {**RESULT, "op": "copy", "kernel": "copy", "problem": {**RESULT["problem"], "options": {}}}  # type: ignore[dict-item]


def visit(*results: dict[str, Any], **device: str) -> dict[str, Any]:
    """Return a visit with these changes to RESULT, and these facts of the device."""
    known = VISIT["device"]
    assert isinstance(known, dict)
    found = [
        {**RESULT, **one, "problem": {**problem(), **one.get("problem", {})}} for one in results or ({},)
    ]
    return {**VISIT, "device": {**known, **device}, "results": found}


def problem() -> dict[str, Any]:
    found = RESULT["problem"]
    assert isinstance(found, dict)
    return found


def data_of(*contents: Any) -> dict[str, Any]:
    """Return the page's data of visits that the collector accepts."""
    rows = [parse_visit(json.dumps(content).encode()) for content in contents]
    stored = [StoredVisit(at, f"2026-11-{at:02}T10:00Z", ORIGIN, row) for at, row in enumerate(rows, 1)]
    # A page reads the data from a file.
    found: dict[str, Any] = json.loads(data_text(summarized(stored).as_json()))
    return found


def kernel_of(group: dict[str, Any], name: str) -> dict[str, Any]:
    values = next(one for one in group["kernels"] if one[0] == name)
    return dict(zip(COLUMNS, values, strict=True))


def stored_in(path: Path, *contents: Any) -> Path:
    store = VisitStore(path, 1 << 24)
    for content in contents:
        assert store.add(parse_visit(json.dumps(content).encode()), ORIGIN)
    return path


# --- the summary ------------------------------------------------------------------------------------


def test_medians_and_counts_are_of_a_device_an_engine_and_a_problem() -> None:
    data = data_of(
        visit({"percent_of_copy": 50, "gbps": 5, "max_abs_error": 1e-6}),
        visit({"percent_of_copy": 90, "gbps": 9, "max_abs_error": 3e-6, "flags": ["noisy"]}),
        visit({"percent_of_copy": 70, "gbps": 7, "max_abs_error": 2e-6, "problem": {"seed": 1}, "flags": []}),
        visit({"percent_of_copy": 10}, driver="Chrome 141"),
        visit({"percent_of_copy": 20, "problem": {"rows": 8}}),
    )
    assert data["visits"] == 5 and data["received"] == ["2026-11-01T10:00Z", "2026-11-05T10:00Z"]
    assert [(one["engine"], one["version"], one["visits"]) for one in data["devices"]] == [
        ("Chrome", "140", 4),
        ("Chrome", "141", 1),
    ]
    assert [one["rows"] for one in data["problems"]] == [4096, 8]
    first, second, third = data["groups"]
    assert [(one["device"], one["problem"], one["visits"]) for one in data["groups"]] == [
        (0, 0, 3),
        (1, 0, 1),
        (0, 1, 1),
    ]
    found = kernel_of(first, "registers")
    assert (found["pass"], found["timed"], found["flagged"]) == (3, 3, 2)
    assert (found["percent_of_copy"], found["gbps"], found["max_abs_error"]) == (70, 7, 3e-6)
    assert [kernel_of(one, "registers")["percent_of_copy"] for one in (second, third)] == [10, 20]


def test_each_verdict_is_counted_and_only_right_results_are_timed() -> None:
    data = data_of(
        visit({"status": "fail", "max_abs_error": "inf"}),
        visit({"status": "fail", "expected": True, "max_abs_error": "nan"}),
        visit({"status": "skip", "percent_of_copy": 1e9}),
        visit({"status": "error"}),
        visit({"percent_of_copy": 40, "flags": []}),
    )
    (group,) = data["groups"]
    found = kernel_of(group, "registers")
    assert {name: found[name] for name in ("pass", "fail", "expected", "skip", "error")} == dict.fromkeys(
        ("pass", "fail", "expected", "skip", "error"), 1
    )
    assert (found["timed"], found["flagged"], found["percent_of_copy"]) == (1, 0, 40)
    # NaN is the largest error, in whatever order the visits come.
    assert found["max_abs_error"] == "nan"
    assert (
        kernel_of(data_of(visit({"max_abs_error": "inf"}), visit())["groups"][0], "registers")[
            "max_abs_error"
        ]
        == "inf"
    )


def test_a_visit_has_one_vote_for_a_kernel() -> None:
    many = visit({"percent_of_copy": 62}, *({"percent_of_copy": 1e6 + at} for at in range(99)))
    data = data_of(many, visit({"percent_of_copy": 60}), visit({"percent_of_copy": 1e6}))
    found = kernel_of(data["groups"][0], "registers")
    assert (found["pass"], found["percent_of_copy"]) == (3, 62)


def test_options_and_scalars_are_named_as_differences_from_the_labs_problem() -> None:
    """The lab's problems have the defaults of their op, so they have no words."""
    plain = {"op": "rms_norm", "problem": {"options": {"weight": True, "bias": False}, "eps": 2.0**-23}}
    data = data_of(
        visit(plain),
        visit({"problem": {"options": {"residual": True}, "eps": 0.5, "distribution": "mean1000"}}),
        visit(COPY),
    )
    assert {(one["op"], one["options"], one["distribution"]) for one in data["problems"]} == {
        ("rms_norm", "", "normal"),
        ("layer_norm", "residual, eps=0.5", "mean1000"),
    }
    # The copy is the unit of the shares.
    assert data["visits"] == 3 and "copy" not in [one["op"] for one in data["problems"]]


def test_the_kernels_are_in_the_order_of_the_ladder() -> None:
    (ladder,) = data_of(visit())["ladders"]
    assert ladder["op"] == "layer_norm" and ladder["kernels"][:3] == ["naive", "one_pass", "two_pass"]


def test_a_driver_without_a_version_is_an_engine_too() -> None:
    data = data_of(visit(driver="another browser"), visit(driver="Safari 26.1"), visit(driver=""))
    assert {(one["engine"], one["version"]) for one in data["devices"]} == {
        ("another browser", ""),
        ("Safari", "26.1"),
        ("", ""),
    }


def test_visitors_texts_stay_data() -> None:
    """The page's files other than the data do not depend on the visits."""
    hostile = visit(adapter=HOSTILE, vendor="</script>", driver=f"{HOSTILE} 1")
    files, empty = visits_page(data_of(hostile)), visits_page(data_of())
    changed = {name for name in files if files[name] != empty[name]}
    assert changed == {"visits.json", VISITS.listing} and HOSTILE not in files[VISITS.listing].decode()


def test_the_page_has_no_inline_code() -> None:
    """Sites may forbid everything but files of their own."""
    html = visits_page(data_of())["index.html"].decode()
    assert "<style" not in html and "style=" not in html and " on" not in html.split("<body")[0]
    assert html.count("<script") == html.count("<script src=")
    assert "http" not in html


# --- the command ------------------------------------------------------------------------------------


def test_a_page_is_written_and_replaced(tmp_path: Path) -> None:
    store = stored_in(tmp_path / "visits.sqlite", visit())
    command = ["collect", "--store", store.name, "--page", "site"]
    done = webnorm(command, tmp_path)
    assert (done.returncode, done.stdout) == (0, "site: a page of 1 visit; serve it and open index.html\n")
    site = tmp_path / "site"
    (site / "notes.txt").write_text("mine")
    stored_in(store, visit(adapter="another"))
    assert "site: a page of 2 visits; " in webnorm(command, tmp_path).stdout
    assert json.loads((site / "visits.json").read_text())["visits"] == 2
    assert (site / "notes.txt").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"visits.sqlite", "site"}


def test_a_store_without_visits_has_a_page(tmp_path: Path) -> None:
    store = stored_in(tmp_path / "visits.sqlite")
    done = webnorm(["collect", "--store", store.name, "--page", "site"], tmp_path)
    assert done.returncode == 0 and "a page of 0 visits" in done.stdout, done.stderr
    assert json.loads((tmp_path / "site" / "visits.json").read_text())["groups"] == []


def test_another_folder_stays_unchanged(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    store = stored_in(tmp_path / "visits.sqlite", visit())
    other, file, lab = (tmp_path / name for name in ("other", "file", "lab"))
    other.mkdir()
    (other / "photo.jpg").write_bytes(b"x")
    file.write_text("mine")
    # The listing of another kind of folder.
    (lab / "bundles").mkdir(parents=True)
    (lab / "bundles" / "index.json").write_text('{"schema": 1, "webnorm": "0", "files": {}}')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for folder in (other, lab):
        message = mistake(["collect", "--store", store.name, "--page", str(folder)])
        assert f"--page {folder}: exists and is not a page of visits; choose another folder" in message
        assert "--force" not in message
    assert "is a file; expected a folder" in mistake(["collect", "--store", store.name, "--page", "file"])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_visits_that_do_not_match_the_schema_are_left_out_and_named(tmp_path: Path) -> None:
    store = VisitStore(tmp_path / "visits.sqlite", 1 << 24)
    good = json.dumps(visit())
    later = {**visit(), "results": [{**RESULT, "op": "soft"}]}
    wrong = {**visit(), "results": [{**RESULT, "problem": {**problem(), "options": {"a": 1}}}]}
    for content in (good, "{", json.dumps(later), json.dumps(wrong), good.replace('"GPU"', '"TPU"')):
        assert store.add(content, ORIGIN)
    done = webnorm(["collect", "--store", "visits.sqlite", "--page", "site"], tmp_path)
    assert done.returncode == 3 and done.stdout == "site: a page of 1 visit; serve it and open index.html\n"
    lines = done.stderr.splitlines()
    assert [line.split(": ")[:3] for line in lines] == [
        ["webnorm", "visits.sqlite", f"left out visit {number}"] for number in (2, 3, 4, 5)
    ]
    data = json.loads((tmp_path / "site" / "visits.json").read_text())
    assert (data["visits"], data["left_out"]) == (1, 4)
    for at in range(9):
        assert store.add(f"[{at}", ORIGIN)
    done = webnorm(["collect", "--store", "visits.sqlite", "--page", "site"], tmp_path)
    assert done.stderr.splitlines()[5:] == ["webnorm: visits.sqlite: left out 8 more visits"]


def test_a_damaged_store_leaves_the_older_page(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    path = stored_in(tmp_path / "visits.sqlite", *(visit(vendor=f"{at}" * 150) for at in range(9)))
    assert webnorm(["collect", "--store", path.name, "--page", "site"], tmp_path).returncode == 0
    before = (tmp_path / "site" / "visits.json").read_bytes()
    whole = path.read_bytes()
    # The first page of the file contains its header and the schema.
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    message = mistake(["collect", "--store", path.name, "--page", "site"])
    assert "visits.sqlite cannot be read: " in message
    path.write_bytes(b"")
    assert "visits.sqlite cannot be read: " in mistake(["collect", "--store", path.name, "--page", "site"])
    with sqlite3.connect(tmp_path / "foreign") as other:
        other.execute("CREATE TABLE visits (id)")
    other.close()
    assert "is not a store of visits" in mistake(["collect", "--store", "foreign", "--page", "site"])
    assert "no such store" in mistake(["collect", "--store", "none", "--page", "site"])
    assert (tmp_path / "site" / "visits.json").read_bytes() == before


# --- the sample in the docs -------------------------------------------------------------------------


def test_the_sample_in_the_docs_has_the_present_form() -> None:
    """`python -m bench.open_results` writes it."""
    text = (ROOT / "docs" / "open-results.json").read_text()
    data = json.loads(text)
    assert data_text(data) == text and data["schema"] == visit_summary.SCHEMA
    assert data.keys() == data_of(visit()).keys() and tuple(data["columns"]) == COLUMNS
    assert {one["engine"] for one in data["devices"]} == {"Chrome", "Firefox"}
    assert {one["op"] for one in data["problems"]} == {op.name for op in NORM_OPS}
    # Both are on a machine without a GPU, whose times rank no GPU; the docs and the page say so.
    assert all(one["software"] for one in data["devices"])
