"""The page of environment variables names every variable that the code reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pages import ROOT

PAGE = ROOT / "docs" / "environment.md"
# Upper-case names with an underscore between quotes, as variables are written.
_QUOTED = re.compile(r'"(_?[A-Z][A-Z0-9]*(?:_+[A-Z0-9]+)+)"')
# Names without an underscore, at the places where code reads them.
_READ = re.compile(r'(?:environ(?:\.\w+\(|\[)|_size_of\()"(\w+)"')
_OWN = re.compile(r"\b_?WEBNORM_[A-Z_]+\b")


def variables(folder: Path) -> Iterator[str]:
    """Yield the variables that the modules of a folder read, and every name that starts with WEBNORM_."""
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        yield from _OWN.findall(text)
        if "os.environ" in text:
            yield from (name for name in (*_QUOTED.findall(text), *_READ.findall(text)) if is_variable(name))


def is_variable(name: str) -> bool:
    """Return True if a name is not a constant of the os module."""
    return not hasattr(os, name) and name not in getattr(os, "sysconf_names", ())


def test_the_page_names_every_variable_that_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = {*variables(ROOT / "webnorm")}
    assert {"WEBNORM_ADAPTER", "XDG_DATA_HOME", "NO_COLOR", "COLUMNS", "VK_DRIVER_FILES"} <= found
    assert [name for name in sorted(found) if f"`{name}`" not in text] == []


def test_the_page_names_no_variable_of_webnorm_that_is_not_read() -> None:
    found = {*variables(ROOT / "webnorm"), *variables(ROOT / "tests")}
    assert {*_OWN.findall(PAGE.read_text(encoding="utf-8"))} <= found
