"""The first tier covers everything: what it records and what it misses. A run with gaps fails."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tiers
from pages import ROOT
from webnorm.kernels.headers.library import discover


@pytest.fixture
def nothing_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_met", set())
    monkeypatch.setattr(tiers, "_excused", {})
    monkeypatch.setattr(tiers, "_left", Counter())


@pytest.mark.usefixtures("nothing_met")
def test_each_thing_that_is_not_met_is_named() -> None:
    everything = tiers.needed()
    assert {thing[0] for thing in everything} == {"kernel", "verb", "page", "room", "browser"}
    tiers.add({"met": everything, "excused": [], "left": {}})
    assert tiers.missing() == []
    for one in (
        ("kernel", "rms_norm/streaming", "dtype=bfloat16"),
        ("kernel", "layer_norm/naive", "out_dtype=float8_e5m2"),
        ("kernel", "layer_norm_backward/one_dispatch", "saved_stats"),
        ("verb", "store regressions"),
        ("page", "docs/trust.md"),
        ("room", "webnorm.fleet"),
        ("browser", "chromium"),
        ("browser", "firefox"),
    ):
        assert one in everything
        tiers._met = everything - {one}
        assert tiers.missing() == [f"{' '.join(one[:-1])}: {one[-1]}"]


@pytest.mark.usefixtures("nothing_met")
def test_a_reason_excuses_what_it_names_and_no_more() -> None:
    everything = tiers.needed()
    tiers.add(
        {"met": {one for one in everything if one[0] not in ("kernel", "verb")}, "excused": [], "left": {}}
    )
    for kernel in discover():
        tiers.excuse("kernel", kernel.label, reason="no subgroups")
    assert [line.split(":")[0] for line in tiers.missing()] == ["verb"]
    assert "kernel rms_norm/naive: no subgroups" in tiers.excuses()


@pytest.mark.usefixtures("nothing_met")
def test_a_verb_is_met_by_its_whole_name() -> None:
    for words in (
        ["store", "add", "x.json"],
        ["bench", "--help"],
        ["doctor", "--fix"],
        ["cluster"],
        ["--version"],
    ):
        tiers.meet_verb(words)
    assert tiers._met == {("verb", "store add"), ("verb", "doctor"), ("verb", "cluster")}


@pytest.mark.usefixtures("nothing_met")
def test_processes_that_leave_out_the_same_tests_count_them_once() -> None:
    other = {"met": [["verb", "list"]], "excused": [], "left": {"tests/web": 2, "tests/lab": 1}}
    for _ in range(3):
        tiers.add(other)
    assert tiers.left() == "3 tests: tests/web 2, tests/lab 1"


@pytest.mark.slow
def test_a_run_of_the_first_tier_that_misses_something_fails(tmp_path: Path) -> None:
    """Run the suite's own conftest with a single test, which covers one verb."""
    for path in (ROOT / "tests").glob("[!t]*.py"):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "tiers.py").symlink_to(ROOT / "tests" / "tiers.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\nmarkers = slow: s\n")
    (tmp_path / "test_one.py").write_text(
        "import pytest, tiers\n"
        "def test_verb():\n    tiers.meet('verb', 'list')\n"
        "@pytest.mark.slow\ndef test_other():\n    tiers.meet('verb', 'show')\n"
    )

    def run(*arguments: str) -> tuple[int, str]:
        # conftest.py implements a hook of xdist. Plugins may not be loaded automatically, so it is named.
        options = ("-p", "xdist", "-p", "no:cacheprovider", "-m", tiers.FIRST)
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    status, output = run()
    assert status == pytest.ExitCode.TESTS_FAILED and "1 passed, 1 deselected" in output
    assert "1 tests: test_one.py 1" in output
    (verbs,) = [
        line for line in output.splitlines() if line.startswith("met by no test of this tier: verb: ")
    ]
    assert "show" in verbs and "list" not in verbs
    # A test selected by its name is not the whole tier.
    status, output = run("test_one.py")
    assert status == pytest.ExitCode.OK and "met by no test" not in output
