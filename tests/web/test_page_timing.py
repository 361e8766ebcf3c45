"""How a page measures, on a device whose clock is made up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from webnorm.web import tint
from webnorm.web.folder import write
from webnorm.web.pages import page_files

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def test_a_page_waits_until_the_device_works_as_it_does_under_load(tmp_path: Path) -> None:
    write({**page_files("lab"), "package.json": b'{"type": "module"}'}, tmp_path)
    driver = Path(__file__).with_name("pace.mjs")
    devices = map(Path, ("0", "350", "Infinity", "NaN"))
    awake, idled, restless, slow = tint.run_node(driver, tmp_path, *devices)
    assert (awake["slowest"], awake["settled"]) == (10, True)
    assert (idled["slowest"], idled["settled"]) == (10, True)
    assert not restless["settled"]
    assert restless["spent"] < 10_000
    assert slow["settled"]
