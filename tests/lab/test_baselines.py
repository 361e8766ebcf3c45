from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from samples import REPORT
from webnorm.errors import WebnormError
from webnorm.lab import baselines, result_files


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBNORM_BASELINES", str(tmp_path / "kept"))


def test_what_a_newer_baseline_replaces_has_another_name() -> None:
    older = replace(REPORT, device={"adapter": "older"})
    baselines.save(older, "main")
    baselines.save(REPORT, "main")
    assert baselines.read("main").device == REPORT.device
    assert baselines.read("main~").device == older.device
    assert baselines.names() == ["main", "main~"]


@pytest.mark.parametrize(
    "name", ["", "main.json", "../main", "a/b", ".hidden", "-x", "a" * 101, "a\n", "ä", "main~~"]
)
def test_a_name_is_no_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="a baseline's name is"):
        baselines.save(REPORT, name)
    assert not (tmp_path / "kept").exists()


def test_one_that_there_is_not_is_told() -> None:
    with pytest.raises(WebnormError, match=r"no baseline 'main'; `webnorm bench --save NAME` keeps one"):
        baselines.read("main")
    baselines.save(REPORT, "main")
    with pytest.raises(WebnormError, match="no baseline 'mian'; did you mean 'main'"):
        baselines.read("mian")
    with pytest.raises(WebnormError, match="'mian' is no file, and no baseline; did you mean 'main'"):
        baselines.read_any("mian")
    with pytest.raises(WebnormError, match="is what `main` was before"):
        baselines.save(REPORT, "main~")


def test_a_file_goes_before_a_baseline_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    baselines.save(REPORT, "main")
    assert baselines.read_any("main").device == REPORT.device
    Path("main").write_text(result_files.to_json(replace(REPORT, device={"adapter": "of the file"})))
    assert baselines.read_any("main").device == {"adapter": "of the file"}
