"""`webnorm store` as a user runs it, and the recipes of docs/history.md."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from commands import webnorm
from pages import ROOT, blocks
from patience import HANG_S
from samples import CARD, kept_run
from webnorm.cli.work.jobs import INCONCLUSIVE, OK
from webnorm.gpu.device import Device
from webnorm.lab.results import result_files
from webnorm.lab.results.result import Report

PAGE = ROOT / "docs" / "history.md"


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBNORM_STORE", str(tmp_path / "data" / "store.db"))


def written(folder: Path, *reports: Report) -> list[str]:
    names = [f"{report.origin.recorded[:10] if report.origin else 'old'}.json" for report in reports]
    for name, report in zip(names, reports, strict=True):
        (folder / name).write_text(result_files.to_json(report))
    return names


def steady(folder: Path, count: int = 10) -> list[str]:
    times = (2000.0, 2004.0, 1998.0)
    return written(folder, *(kept_run(at, {"registers": times[at % 3]}) for at in range(count)))


def test_stored_results_are_shown_and_a_regression_ends_with_1(tmp_path: Path) -> None:
    names = steady(tmp_path)
    done = webnorm(["store", "add", *names], tmp_path)
    first, *_, last = done.stdout.splitlines()
    assert first == f"{names[0]}: added, 2 results, 2 with times"
    assert last == f"stored in {tmp_path / 'data' / 'store.db'}"
    again = webnorm(["store", "add", names[0]], tmp_path)
    assert again.returncode == 0 and f"{names[0]}: already stored" in again.stdout
    even = webnorm(["store", "regressions"], tmp_path)
    assert even.returncode == 0 and "1 SAME" in even.stdout

    slow = written(tmp_path, kept_run(10, {"registers": 2200.0}))
    assert webnorm(["store", "add", *slow], tmp_path).returncode == 0
    done = webnorm(["store", "regressions", "--json", "-"], tmp_path)
    assert done.returncode == 1
    heading, platform, run, problem, line, *_ = done.stderr.splitlines()
    assert heading.split() == ["kernel", "ratio", "interval", "band", "runs"]
    assert platform == "Some GPU, Vulkan, driver 1.2, wgpu 0.32.0"
    assert run == "2026-11-11T00:00:00Z, run 00000000, commit ab-dirty"
    assert problem == "layer_norm 64x768 float32"
    assert re.fullmatch(r"  registers +1\.100 +1\.\d+ to 1\.\d+ +2\.0 % +10 +SLOWER", line), line
    data = json.loads(done.stdout)
    (platform,) = data["platforms"]
    assert data["regressions"] == 1 and platform["driver"] == "1.2"
    assert platform["results"][0]["verdict"] == "SLOWER" and platform["results"][0]["runs"] == 10

    done = webnorm(["store", "history", "--last", "2", "--kernel", "reg*", "--csv", "-"], tmp_path)
    shown = done.stderr.splitlines()
    assert (
        shown[0].split()[:3] == ["kernel", "recorded", "run"] and shown[-1] == "11 reports, 0 without times"
    )
    assert [line.split()[1] for line in shown if "  registers" in line] == [
        "2026-11-10T00:00:00Z",
        "2026-11-11T00:00:00Z",
    ]
    assert "2.2 us" in shown[4] and "178.7" in shown[4]
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [one["median_ns"] for one in found] == ["2000.0", "2200.0"]
    data = json.loads(webnorm(["store", "history", "--json", "-"], tmp_path).stdout)
    assert len(data["entries"]) == 20 and data["entries"][-1]["op"] == "copy"


def test_too_few_runs_are_reported(tmp_path: Path) -> None:
    webnorm(["store", "add", *steady(tmp_path, 3)], tmp_path)
    done = webnorm(["store", "regressions"], tmp_path)
    assert done.returncode == 3 and done.stdout.splitlines()[-2:] == [
        "1 not compared",
        "UNCLEAR: too few runs: 2 earlier runs to compare with; at least 3 are needed",
    ]


def test_an_interrupted_run_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = steady(tmp_path, 2)
    webnorm(["store", "add", names[0]], tmp_path)
    before = (tmp_path / "data" / "store.db").read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("webnorm.lab.report.history.store._row", interrupt)
    done = webnorm(["store", "add", names[1]], tmp_path)
    assert done.returncode == 130 and done.stderr.count("\n") == 1
    assert (tmp_path / "data" / "store.db").read_bytes() == before
    cut = written(tmp_path, kept_run(5, {"registers": 1.0}, complete=False))
    monkeypatch.undo()
    copies = written(tmp_path, kept_run(6, {}, complete=False))
    done = webnorm(["store", "add", *cut, *copies, "--store", "cut.db"], tmp_path)
    assert "2 results, 2 with times" in done.stdout and "1 result, 1 with" in done.stdout
    done = webnorm(["store", "regressions", "--store", "cut.db"], tmp_path)
    assert done.returncode == 3 and done.stdout.splitlines()[1:] == [
        "no run is complete",
        "no complete run has times",
    ]


def test_mistakes_are_one_line(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    names = steady(tmp_path, 1)
    (tmp_path / "bad\x1b.json").write_text("[")
    output = mistake(["store", "add", *names, "bad\x1b.json"])
    assert r"bad\x1b.json is not JSON" in output and output.endswith("; nothing was added\n")
    assert "is no store; `webnorm store add FILES` creates one" in mistake(["store", "history"])
    assert "is not a store of results" in mistake(["store", "add", *names, "--store", names[0]])
    webnorm(["store", "add", *names], tmp_path)
    for words, said in (
        (
            ["add", *names, "--store", "gone/x.db"],
            "gone/x.db cannot be written: the folder gone does not exist;",
        ),
        (["history", "--kernel", "nave"], "unknown kernel 'nave'"),
        (["history", "--plot", "x.pdf"], "its suffix is '.pdf'"),
        (["history", "--json", "data/store.db"], "which is an input"),
        (["regressions", "--last", "2"], "--last is 2; it must be at least 3"),
        (["regressions", "--adapter", "none"], "no adapter name contains 'none'"),
        (["export", *names, "--format", "csv"], "--format is 'csv'; it must be bencher or github"),
        (["export", *names, "--format", "github", "--out", names[0]], "which is an input"),
        (["nothing"], "unknown verb 'nothing'; expected one of add, export, history, regressions; see"),
        ([], "the verb is missing; expected one of add, history, regressions, export; see webnorm store"),
    ):
        assert said in mistake(["store", *words]), words


def test_names_of_others_are_shown_as_escapes(tmp_path: Path) -> None:
    device = {**CARD, "adapter": "a\x1b]0;x\x07", "driver": "two\nlines"}
    webnorm(["store", "add", *written(tmp_path, kept_run(0, {"k\x1b[31m": 5.0}, device=device))], tmp_path)
    for words in (["history"], ["regressions"]):
        out = webnorm(["store", *words], tmp_path).stdout
        assert r"a\x1b]0;x\x07, Vulkan, driver two\nlines" in out and "\x1b" not in out


@pytest.mark.slow
@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_the_picture_breaks_where_the_driver_changed(tmp_path: Path) -> None:
    from webnorm.lab.report.history.series import SeriesQuery, history, history_panels

    newer = {**CARD, "driver": "1.3"}
    names = steady(tmp_path, 4)
    names += written(tmp_path, *(kept_run(at, {"registers": 1500.0}, device=newer) for at in range(4, 6)))
    webnorm(["store", "add", *names], tmp_path)
    done = webnorm(["store", "history", "--plot", "history.svg"], tmp_path)
    text = (tmp_path / "history.svg").read_text()
    assert done.returncode == 0 and all(
        word in text for word in ("registers", "copy (roofline)", "driver 1.3")
    )
    (panel,) = history_panels(history(tmp_path / "data" / "store.db", SeriesQuery(), 10))
    assert [[*piece] for piece in panel.lines["registers"]] == [[0, 1, 2, 3], [4, 5]]
    assert panel.changes == {3.5: "driver 1.3"} and len(panel.dates) == 6
    copies = webnorm(["store", "history", "--op", "copy", "--plot", "copies.png"], tmp_path)
    assert copies.returncode == 0 and (tmp_path / "copies.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(find_spec("duckdb") is None, reason="duckdb is not installed")
def test_the_recipe_for_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    names = steady(tmp_path, 3)
    # Older and odd files are in the same folder.
    old = (tmp_path / names[0]).read_text().replace('"recorded"', '"time"')
    (tmp_path / names[0]).write_text(old.replace('"max_abs_error": 1.5e-06', '"max_abs_error": "inf"'))
    monkeypatch.chdir(tmp_path)
    (query,) = blocks(PAGE, "sql")
    answer = duckdb.sql(query)
    assert answer is not None and answer.columns == ["kernel", "rows", "cols", "runs", "gbps", "newest"]
    ((*found, newest),) = answer.fetchall()
    assert found == ["registers", 64, 768, 3, 196.6] and str(newest).startswith("2026-11-03")
    webnorm(["store", "add", *names], tmp_path)
    assert webnorm(["store", "history", "--csv", "history.csv"], tmp_path).returncode == 0
    lines = duckdb.sql(
        "SELECT count(*) FROM 'history.csv' WHERE op <> 'copy' AND driver = 1.2 AND gbps > 190"
    )
    assert lines is not None and lines.fetchall() == [(3,)]


def test_history_has_one_line_per_variant_and_copies_on_request(tmp_path: Path) -> None:
    webnorm(["store", "add", *steady(tmp_path, 4)], tmp_path)
    lines = webnorm(["store", "history"], tmp_path).stdout.splitlines()
    assert lines[0].split()[:3] == ["kernel", "runs", "recorded"]
    (line,) = (line for line in lines if line.startswith("  "))
    assert line.split()[:3] == ["registers", "4", "2026-11-04T00:00:00Z"]
    assert lines[-1] == "4 reports, 0 without times; 1 series of copy kernels not shown: use --copies"
    for asked in (["--copies"], ["--op", "copy"], ["--kernel", "copy"]):
        shown = webnorm(["store", "history", *asked], tmp_path).stdout
        assert "  copy " in shown and "left out" not in shown
    files = webnorm(["store", "history", "--csv", "-"], tmp_path).stdout
    assert len(files.strip().splitlines()) == 1 + 4 * 2


def test_an_unclear_comparison_ends_with_3(tmp_path: Path) -> None:
    """With one run on each side, any difference may be chance."""
    names = written(tmp_path, kept_run(0, {"registers": 2000.0}), kept_run(1, {"registers": 2900.0}))
    done = webnorm(["compare", *names], tmp_path)
    assert done.returncode == INCONCLUSIVE
    assert done.stdout.splitlines()[-1].startswith("UNCLEAR: 1 of 1 comparison. Measure both sides again")
    assert webnorm(["compare", names[0], names[0]], tmp_path).returncode == OK


@pytest.mark.slow
def test_a_benchmark_with_an_unclear_comparison_ends_with_3(tmp_path: Path, device: Device) -> None:
    timing = ["bench", "-k", "naive", "--rows", "4", "--cols", "64", "--budget", "0.05", "--runs", "1"]
    assert webnorm([*timing, "--save", "nothing"], tmp_path).returncode == OK
    done = webnorm([*timing, "--baseline", "nothing"], tmp_path)
    assert done.returncode == INCONCLUSIVE and "comparison. Measure both sides again" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(find_spec("datasette") is None, reason="datasette is not installed")
def test_the_recipe_for_datasette(tmp_path: Path) -> None:
    webnorm(["store", "add", *steady(tmp_path, 3)], tmp_path)
    (text,) = blocks(PAGE, "sh")
    answers = []
    for line in text.splitlines():
        program, *words = re.findall(r"'[^']*'|\S+", line)
        assert program == "datasette"
        command = [sys.executable, "-m", "datasette", *(word.strip("'") for word in words)]
        done = subprocess.run(
            command, cwd=tmp_path / "data", capture_output=True, text=True, timeout=HANG_S, check=True
        )
        answers.append(json.loads(done.stdout))
    of_registers, by_kernel = answers
    assert [one["recorded"][:10] for one in of_registers] == ["2026-11-03", "2026-11-02", "2026-11-01"]
    assert {one["kernel"]: one["runs"] for one in by_kernel} == {"copy": 3, "registers": 3}
