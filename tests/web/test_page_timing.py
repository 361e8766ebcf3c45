"""How a page measures, on devices whose clock is made up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from webnorm.web import tint
from webnorm.web.folder import write_folder
from webnorm.web.pages import page_files

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What web/pace.mjs finds of each."""
    folder = tmp_path_factory.mktemp("page")
    write_folder({**page_files("lab"), "package.json": b'{"type": "module"}'}, folder)
    return tint.run_node(Path(__file__).with_name("pace.mjs"), folder)


@pytest.mark.parametrize("name", ["awake", "idled", "paused", "software"])
def test_what_counts_is_a_device_that_works_as_it_does_under_load(devices: Any, name: str) -> None:
    """A copy measured cold would make a kernel seem faster than it."""
    found = devices[name]
    assert (found["copy"], found["kernel"], found["settled"]) == (1, 1, True)
    assert not found["drifting"]
    assert (name == "paused") == (found["spent"] > 5000)


def test_a_device_that_does_not_come_to_rest_is_waited_for_once(devices: Any) -> None:
    first, then = devices["restless"], devices["still_restless"]
    assert not first["settled"] and not then["settled"]
    assert first["spent"] > 5000
    # No more than half a second, and what the samples take.
    assert then["spent"] < 2500


def test_a_sample_that_takes_seconds_is_not_waited_for(devices: Any) -> None:
    assert devices["slow"]["settled"]


def test_a_software_adapter_is_hardly_waited_for(devices: Any) -> None:
    assert devices["software"]["spent"] < 300


def test_a_sample_is_under_way_before_the_last_is_read(devices: Any) -> None:
    assert devices["awake"]["most"] == 2


def test_a_copy_that_moves_while_all_is_timed_is_told(devices: Any) -> None:
    assert devices["heating"]["drifting"] and devices["heating"]["drift"] > 0.03
    assert devices["awake"]["drift"] == 0
