from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from commands import webnorm
from full import full_disk
from samples import COPIES, FULL, ORIGIN, REPORT, timed
from webnorm.errors import WebnormError
from webnorm.lab.report import baselines
from webnorm.lab.results import result_files


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBNORM_BASELINES", str(tmp_path / "kept"))


def test_the_previous_baseline_is_renamed() -> None:
    older = replace(REPORT, device={"adapter": "older"})
    baselines.save_baseline(older, "main")
    baselines.save_baseline(REPORT, "main")
    assert baselines.read_baseline("main").device == REPORT.device
    assert baselines.read_baseline("main~").device == older.device
    assert baselines.baseline_names() == ["main", "main~"]


def test_concurrent_saves_lose_nothing() -> None:
    with ThreadPoolExecutor(2) as threads:
        for turn in range(25):
            both = [{"adapter": f"{turn} {which}"} for which in "ab"]
            list(threads.map(lambda one: baselines.save_baseline(replace(REPORT, device=one), "main"), both))
            assert [baselines.read_baseline(name).device for name in ("main", "main~")] in (both, both[::-1])


def test_both_baselines_stay_if_the_disk_is_full(tmp_path: Path) -> None:
    older, old = ({"adapter": name} for name in ("older", "old"))
    for device in (older, old):
        kept = baselines.save_baseline(replace(REPORT, device=device), "main")
    with full_disk(kept.stat().st_size + 64), pytest.raises(WebnormError, match="File too large"):
        baselines.save_baseline(replace(REPORT, results=REPORT.results * 9), "main")
    assert [baselines.read_baseline(name).device for name in ("main", "main~")] == [old, older]
    assert sorted(path.name for path in kept.parent.iterdir()) == ["main.json", "main~.json"]


@pytest.mark.parametrize(
    "name", ["", "main.json", "../main", "a/b", ".hidden", "-x", "a" * 101, "a\n", "ä", "main~~"]
)
def test_names_are_not_paths(name: str, tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="the baseline name is"):
        baselines.save_baseline(REPORT, name)
    assert not (tmp_path / "kept").exists()


def test_unknown_baselines_are_errors() -> None:
    with pytest.raises(WebnormError, match=r"no baseline 'main'; `webnorm bench --save NAME` saves one"):
        baselines.read_baseline("main")
    baselines.save_baseline(REPORT, "main")
    with pytest.raises(WebnormError, match="no baseline 'mian'; did you mean 'main'"):
        baselines.read_baseline("mian")
    with pytest.raises(WebnormError, match="'mian' is neither a file nor a baseline; did you mean 'main'"):
        baselines.read_file_or_baseline("mian")
    with pytest.raises(WebnormError, match="is the previous version of `main`"):
        baselines.save_baseline(REPORT, "main~")


def test_a_file_takes_precedence_over_a_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    baselines.save_baseline(REPORT, "main")
    assert baselines.read_file_or_baseline("main").device == REPORT.device
    Path("main").write_text(result_files.to_json(replace(REPORT, device={"adapter": "of the file"})))
    assert baselines.read_file_or_baseline("main").device == {"adapter": "of the file"}


def test_baselines_are_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "`webnorm bench --save NAME` keeps one" in webnorm(["baselines"], tmp_path).stdout
    one = replace(FULL, case=None)
    several = (COPIES[0], one, timed("naive", 1.0), replace(FULL, problem=replace(FULL.problem, cols=64)))
    baselines.save_baseline(replace(REPORT, results=several, origin=ORIGIN, complete=False), "main")
    baselines.save_baseline(replace(REPORT, results=(one,), origin=ORIGIN), "main")
    (tmp_path / "kept" / "odd.json").write_text("[")
    (tmp_path / "kept" / "no name.json").write_text("{}")
    heading, *rows = webnorm(["baselines"], tmp_path).stdout.splitlines()
    assert heading.split() == ["baseline", "measured", "content", "device"]
    problem = "layer_norm, 64x768 float32, no bias, out_dtype=int8"
    assert [row.split() for row in rows[:2]] == [
        ["main", ORIGIN.recorded, *f"2 runs: {problem} llvmpipe".split()],
        ["main~", ORIGIN.recorded, *f"2 runs, interrupted: {problem} and 2 more llvmpipe".split()],
    ]
    assert rows[2].startswith("odd") and "odd.json is not JSON" in rows[2] and len(rows) == 3
    listed = json.loads(webnorm(["baselines", "main?", "odd", "--json"], tmp_path).stdout)
    assert [one["name"] for one in listed] == ["main~", "odd"] and "not JSON" in listed[1]["reason"]
    assert (listed[0]["complete"], len(listed[0]["problems"])) == (False, 3)
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, webnorm(["baselines"], tmp_path).stdout.splitlines())) <= 40
    gone = webnorm(["baselines", "main*", "odd", "--remove"], tmp_path)
    assert gone.stdout.count("removed ") == 3 and baselines.baseline_names() == []


def test_only_named_baselines_are_removed(tmp_path: Path) -> None:
    baselines.save_baseline(REPORT, "main")
    for words, said in (
        (["--remove"], "--remove needs NAME: it removes the named baselines"),
        (["mian", "--remove"], "no baseline 'mian'; did you mean 'main'?"),
        (["main", "x*", "--remove"], "no baseline 'x*'; baselines: main"),
        (["main", "--remove", "--json"], "--remove and --json cannot be combined"),
    ):
        done = webnorm(["baselines", *words], tmp_path)
        assert done.returncode == 2 and said in done.stderr and baselines.baseline_names() == ["main"]
