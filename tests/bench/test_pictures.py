"""bench.pictures: its SVGs, and the commands in the committed pictures are up to date."""

from __future__ import annotations

import html
import re
import shlex
from xml.etree import ElementTree

import pytest

from bench import pictures
from pages import ROOT
from webnorm.cli.verb_table import _loaded


def texts(svg: str) -> str:
    """Return the text of an SVG, with plain spaces."""
    return " ".join("".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ").split())


def test_a_picture_shows_the_command_and_its_output_and_loads_nothing() -> None:
    svg = pictures.svg("webnorm list <kernel>", "\x1b[1mregisters\x1b[0m  97 %\n")
    assert "$ webnorm list <kernel> registers 97 %" in texts(svg)
    assert not re.search(r"href=|src=|@import|url\([^)#]", svg)
    assert "font-weight: bold" in svg


@pytest.mark.parametrize("name", pictures.SHOWN)
def test_the_pictures_show_the_commands_of_today(name: str) -> None:
    picture = pictures.SHOWN[name]
    for command in filter(None, (picture.before, picture.command)):
        _, verb, *words = shlex.split(command)
        _loaded(verb).make_context(verb, words)
    drawn = texts((pictures.PICTURES / f"{name}.svg").read_text(encoding="utf-8"))
    assert f"$ {picture.command}" in drawn, f"stale: python -m bench.pictures {name}"
    assert f"docs/pictures/{name}.svg" in html.unescape((ROOT / "README.md").read_text(encoding="utf-8"))


def test_an_unknown_picture_is_a_mistake(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["pictures", "nothing"])
    with pytest.raises(SystemExit):
        pictures.main()
    assert "unknown picture 'nothing'; expected one of bench, play" in capsys.readouterr().err
