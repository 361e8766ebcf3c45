"""Former names of verbs and options still work, and neither help nor completion shows them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from test_help import ALL, parameters, shown

from commands import webnorm
from pages import ROOT
from webnorm.cli.options import former_names
from webnorm.cli.options.help import long_name
from webnorm.cli.verb_table import VERBS


def test_every_former_name_has_a_new_one() -> None:
    assert {*former_names._VERBS.values()} <= {*VERBS} and not former_names._VERBS.keys() & {*VERBS}
    options = {long_name(one) for verb in ALL for one in parameters(verb)}
    assert {*former_names._OPTIONS.values()} <= options and not former_names._OPTIONS.keys() & options


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("judge --schema", "evaluate --schema"),
        ("judge", "evaluate"),
        ("judge --help", "evaluate --help"),
        ("fleet", "cluster"),
        ("fleet worker --help", "cluster worker --help"),
        ("doctor --mend --json", "doctor --fix --json"),
        ("baselines none --forget", "baselines none --remove"),
        ("tune --forget --list", "tune --remove --list"),
        ("tune --again --cols 0", "tune --retune --cols 0"),
        ("list naive --here", "list naive --supported"),
        ("store export none.json --as github", "store export none.json --format github"),
        ("store export none.json --as=github", "store export none.json --format=github"),
    ],
)
def test_a_former_name_does_what_the_new_one_does(former: str, current: str, tmp_path: Path) -> None:
    done, expected = webnorm(former.split(), tmp_path), webnorm(current.split(), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        expected.returncode,
        expected.stdout,
        expected.stderr,
    )
    assert "unknown option" not in done.stderr and "unknown verb" not in done.stderr


def test_only_options_of_the_verb_have_former_names(tmp_path: Path) -> None:
    assert "unknown option --here" in webnorm(["doctor", "--here"], tmp_path).stderr
    # Words after -- are arguments.
    assert "unknown kernel '--here'" in webnorm(["list", "--", "--here"], tmp_path).stderr


def test_help_does_not_show_former_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for verb in ("", *ALL):
        words = {word.strip(",.;:") for word in shown(verb, monkeypatch).split()}
        assert not words & {*former_names._VERBS, *former_names._OPTIONS}, verb


@pytest.mark.parametrize(
    "words", [["jud"], ["fle"], ["doctor", "--me"], ["list", "--he"], ["tune", "--ag"], ["tune", "--fo"]]
)
def test_completion_does_not_offer_former_names(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_WEBNORM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["webnorm", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    offered = webnorm([], tmp_path).stdout.split()
    assert not {*offered} & {*former_names._VERBS, *former_names._OPTIONS}


def test_the_former_extra_installs_the_new_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["fleet"] == ["webnorm[cluster]"] and extras["cluster"]
