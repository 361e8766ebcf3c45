"""The lab's page: comparison with recorded devices, copying and sending results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_export_browser import MISSING, chromium, playwright, report_of

import axe
from patience import HANG_MS, HANG_S
from webnorm.serving import serve_folder
from webnorm.web.collection.visit_store import visits
from webnorm.web.folder import LAB_INDEX
from webnorm.web.lab_site import LAB_PAGE, with_index
from webnorm.web.pages import page_files

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Page, Request

pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.xdist_group("browser"),
]
__all__ = ["chromium", "playwright"]
SMALL = {"op": "layer_norm", "cols": 1024, "dtype": "float32", "rows": 8, "kernels": ["naive", "registers"]}


@contextmanager
def lab_at(
    chromium: Chromium, folder: Path, *, elsewhere: bool = False
) -> Iterator[tuple[Page, list[Request]]]:
    """Open the page and collect its requests; `elsewhere` allows requests to other servers."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=elsewhere)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    asked: list[Request] = []
    errors: list[str] = []
    try:
        with serve_folder(folder) as server:
            page = context.new_page()
            page.set_default_timeout(HANG_MS)
            page.on("request", lambda request: asked.append(request))
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(f"{server.url}/{LAB_PAGE}")
            page.wait_for_selector("#kernels article")
            yield page, asked
            assert errors == [] and server.missing == []
    finally:
        context.close()


def run(page: Page, **choice: Any) -> None:
    page.evaluate("(choice) => webnormLab.run(choice)", {**SMALL, **choice})


# --- recorded devices -------------------------------------------------------------------------------


def test_results_are_compared_with_recorded_devices_and_can_be_copied(
    lab_folder: Path, chromium: Chromium
) -> None:
    recorded = json.loads((lab_folder / "page" / "lab_recorded.json").read_text())
    key = "layer_norm-1024-float32"
    with lab_at(chromium, lab_folder) as (page, asked):
        run(page)
        results = [one for one in report_of(page)["results"] if one["op"] == "layer_norm"]
        best = min(results, key=lambda one: float(one["median_ns"]))
        lines = page.locator("#devices tbody tr").all_inner_texts()
        assert len(lines) == 1 + sum(key in device["problems"] for device in recorded.values())
        assert lines[0].startswith("This device: ") and "software" in lines[0] and best["kernel"] in lines[0]
        for name, line in zip(("h200", "h100", "cpu"), lines[1:], strict=True):
            device, problem = recorded[name], recorded[name]["problems"][key]
            assert device["name"] in line and device["date"] in line and f"\t{problem['rows']}\t" in line
            assert f"{problem['percent_of_copy']:.0f} %" in line and ("software" in line) == (name == "cpu")
        for chart in page.locator("#devices svg.chart").all():
            label = str(chart.get_attribute("aria-label"))
            assert chart.get_attribute("role") == "img" and "NVIDIA H200 " in label and "(software) " in label
        note = page.inner_text("#devices article > p")
        assert "rows differ: this device had 8, NVIDIA H200 had 65536, " in note
        assert "say nothing about any GPU" in note
        page.click("#share")
        page.wait_for_function("() => document.querySelector('#share').textContent === 'Copied ✓'")
        copied = page.evaluate("() => navigator.clipboard.readText()")
        assert f"fastest here is {best['kernel']}, " in copied and "NVIDIA H200: 4" in copied
        link = (
            "?op=layer_norm&cols=1024&dtype=float32&distribution=normal&rows=8&seed=0&kernels=naive,registers"
        )
        assert copied.splitlines()[-1] == page.evaluate("() => location.href.split('?')[0]") + link
        assert "Checked against float64: 2 right." in copied and "say nothing about a GPU" in copied
        # No recorded device has this problem.
        run(page, options=["return_stats"])
        assert page.locator("#devices tbody tr").count() == 1
        assert "No record of this problem: NVIDIA H200, " in page.inner_text("#devices article > p")
        origin = page.evaluate("() => location.origin")
        assert {one.url.startswith((origin, f"blob:{origin}")) for one in asked} == {True}


# --- sending ----------------------------------------------------------------------------------------


@contextmanager
def collecting(store: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a collector in its own process, and yield its URL and the process."""
    command = [sys.executable, "-m", "webnorm", "collect", "--store", store.name, "--port", "0"]
    with subprocess.Popen(command, cwd=store.parent, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[3], process
        finally:
            process.kill()


def index_of(lab: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((lab / LAB_INDEX).read_text())
    return index


def with_submit(lab: Path, url: str, folder: Path) -> Path:
    """Write a lab, as `export --submit` does."""
    files = {name: (lab / name).read_bytes() for name in (LAB_INDEX, *index_of(lab)["files"])}
    for name, content in with_index({**files, **page_files("lab", LAB_PAGE)}, url).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_without_submit_no_script_sends(lab_folder: Path) -> None:
    index = index_of(lab_folder)
    assert "submit" not in index and "page/lab_submit.js" not in index["files"]
    scripts = [path.read_text() for path in (lab_folder / "page").glob("*.js")]
    assert scripts and not any('"POST"' in text or "sendBeacon" in text for text in scripts)


def test_the_shown_text_is_sent_and_stored_and_nothing_before(
    lab_folder: Path, chromium: Chromium, tmp_path: Path
) -> None:
    store = tmp_path / "visits.sqlite"
    with collecting(store) as (url, process):
        folder = with_submit(lab_folder, url, tmp_path / "lab")
        assert index_of(folder)["submit"] == url
        with lab_at(chromium, folder, elsewhere=True) as (page, asked):

            def sent() -> list[Request]:
                return [one for one in asked if one.url.startswith(url)]

            assert page.get_attribute("#submit", "aria-disabled") == "true"
            run(page)
            page.click("#submit")
            assert page.inner_text("#submission-url") == url
            assert page.inner_text("#submission-status") == "Nothing has been sent yet."
            text = page.evaluate("() => document.querySelector('#submission-text').textContent")
            page.evaluate(axe.rules())
            assert axe.violations(page) == []
            page.click("#send-not")
            page.click("#submit")
            assert sent() == [] and list(visits(store)) == []
            page.click("#send")
            page.wait_for_function(
                "() => document.querySelector('#submission-status').textContent.match('answer')"
            )
            assert (
                page.inner_text("#submission-status")
                == "Sent; the server's answer is 201: stored, thank you."
            )
            (request,) = sent()
            assert request.method == "POST" and request.post_data == text
            assert not {"cookie", "referer"} & request.all_headers().keys()
            (kept,) = visits(store)
            assert json.loads(kept.content) == json.loads(text) and kept.origin == "visitor"
            device = json.loads(text)["device"]
            assert device.keys() <= {"adapter", "vendor", "driver", "backend", "type", "subgroup_size"}
            assert page.evaluate("() => navigator.userAgent") not in text
            process.send_signal(signal.SIGTERM)
            process.wait(HANG_S)
            page.click("#send-not")
            page.click("#submit")
            page.click("#send")
            page.wait_for_function(
                "() => document.querySelector('#shared').textContent.startsWith('Not sent')"
            )
            assert page.get_attribute("#send", "aria-disabled") == "false"
