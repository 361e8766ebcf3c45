"""The timing of a page, and its waits, on simulated devices."""

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
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_folder({**page_files("lab"), "package.json": b'{"type": "module"}'}, folder)
    return folder


@pytest.fixture(scope="module")
def devices(page: Path) -> Any:
    """Return the results of web/pace.mjs for each device."""
    return tint.run_node(Path(__file__).with_name("pace.mjs"), page)


@pytest.mark.parametrize("name", ["awake", "idled", "paused", "software"])
def test_samples_are_taken_on_a_warm_device(devices: Any, name: str) -> None:
    """A kernel would seem faster than a copy that was measured on a cold device."""
    found = devices[name]
    assert (found["copy"], found["kernel"], found["settled"]) == (1, 1, True)
    assert not found["drifting"]
    assert (name == "paused") == (found["spent"] > 5000)


def test_a_device_that_does_not_settle_is_waited_for_once(devices: Any) -> None:
    first, then = devices["restless"], devices["still_restless"]
    assert not first["settled"] and not then["settled"]
    assert first["spent"] > 5000
    # The page waits at most half a second again, in addition to the time of the samples.
    assert then["spent"] < 2500


def test_a_sample_that_takes_seconds_is_not_waited_for(devices: Any) -> None:
    assert devices["slow"]["settled"]


def test_a_software_adapter_is_hardly_waited_for(devices: Any) -> None:
    assert devices["software"]["spent"] < 300


def test_a_sample_is_submitted_before_the_last_is_read(devices: Any) -> None:
    assert devices["awake"]["most"] == 2


def test_a_copy_that_drifts_during_timing_is_reported(devices: Any) -> None:
    assert devices["heating"]["drifting"] and devices["heating"]["drift"] > 0.03
    assert devices["awake"]["drift"] == 0


def test_only_a_host_that_polls_gets_empty_submissions_while_a_page_waits(page: Path) -> None:
    """Without them, Firefox and Deno take 100 ms for each read."""
    found = tint.run_node(Path(__file__).with_name("wait.mjs"), page)
    for host in ("firefox", "deno"):
        assert found[host] == {"found": "mapped", "submitted": 3}
    assert found["lost"] == {"found": "lost", "submitted": 3}
    for host in ("chrome", "node"):
        assert found[host] == {"found": "mapped", "submitted": 0}


def test_messages_about_the_gpu_fit_the_host(page: Path) -> None:
    """node and Deno have no page to reload, and no browser to restart."""
    found = tint.run_node(Path(__file__).with_name("hung.mjs"), page)
    hung = "The GPU did not answer for 30 s while testing. "
    bug = "If this happens again, the driver or the shader has a bug."
    for host, name in (("node", "node"), ("deno", "Deno")):
        assert found[host] == {
            "hung": f"{hung}Run the command again.",
            "lost": f"{name} lost the GPU while testing (gone). Run the command again. {bug}",
            "refused": f"{name} refused the device: no more",
        }
    assert found["page"] == {
        "hung": f"{hung}Reload the page, or restart the browser.",
        "lost": f"The browser lost the GPU while testing (gone). Reload the page. {bug}",
        "refused": "The browser refused the device: no more",
    }
