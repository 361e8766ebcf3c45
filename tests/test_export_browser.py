"""Exported packages, the lab and the documented snippets in headless Chromium."""

from __future__ import annotations

import json
import re
import shlex
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from packages import COVERING, Export, block
from test_docs import ROOT, webnorm
from webnorm import browser as browsing
from webnorm import results, system, tint, verify
from webnorm.browser import Browser
from webnorm.bundle import CLASSES
from webnorm.export import lab, write
from webnorm.ops import OPS
from webnorm.problem import DTYPES, Array, Problem

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import ConsoleMessage, Page

MISSING = tint.available() or next((mend.missing for mend in browsing.mends()), None)
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# A page takes seconds; the rest is room for a busy machine.
TIME_LIMIT_MS = 90_000
NORMS = tuple(op for op in OPS.values() if not op.exact)
PHONE = 360


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """A browser for pages that a test handles itself."""
    with started(browsing._ARGUMENTS) as opened:
        yield opened


@contextmanager
def started(arguments: Sequence[str]) -> Iterator[Chromium]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=browsing.find(), args=arguments, chromium_sandbox=not system.is_root()
        )
        yield opened
        opened.close()


@contextmanager
def page_at(chromium: Chromium, url: str, *, width: int = 1280, first: str = "") -> Iterator[Page]:
    """A page that may complain of nothing; `first` is a script that runs before its own."""
    complaints: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    context = chromium.new_context(viewport={"width": width, "height": 800})
    try:
        page = context.new_page()
        page.set_default_timeout(TIME_LIMIT_MS)
        page.on("console", said)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if first:
            page.add_init_script(first)
        page.goto(url)
        yield page
        assert complaints == []
    finally:
        context.close()


@contextmanager
def opened(
    chromium: Chromium, folder: Path, address: str, *, width: int = 1280, first: str = ""
) -> Iterator[Page]:
    """A page of a folder, on a site as strict as the one that `webnorm verify` opens."""
    with (
        browsing._served(folder) as server,
        page_at(chromium, f"{server.url}/{address}", width=width, first=first) as page,
    ):
        yield page
        assert server.missing == []


def report_of(page: Page) -> dict[str, Any]:
    page.wait_for_function("() => window.webnormReport != null")
    report: dict[str, Any] = page.evaluate("() => window.webnormReport")
    return report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small package."""
    return Export("layer_norm", (64, 61), "float16").write(tmp_path_factory.mktemp("package") / "ln")


@pytest.fixture(scope="module")
def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("lab") / "lab"
    write(lab(), written)
    return written


# --- every shader ----------------------------------------------------------------------------------


def test_the_packages_cover_every_option_and_type_of_every_op() -> None:
    for op in NORMS:
        asked = [one.request for one in COVERING if one.op == op.name]
        assert {request.dtype for request in asked} == {"float32", "float16", "bfloat16"}
        for option in op.options:
            assert len({getattr(request.options, option) for request in asked}) > 1, f"{op.name} {option}"
        if not op.backward:
            stored = {str(request.options.out_dtype)[:6] for request in asked}
            assert stored == {"None", "int8", "float8"}
    every = {one.request.options.out_dtype for one in COVERING}
    assert every == {None, "int8", "float8_e4m3fn", "float8_e5m2"}


def assert_right(folder: Path, browser: Browser, without: tuple[str, ...] = ()) -> set[str]:
    """Every shader that can run is right, as it was natively, and the best of them is chosen.

    Gives the classes of adapters whose shaders ran.
    """
    found = verify.verify(folder, browser, without=without, quick=True)
    seen = found.seen
    assert seen is not None, found.refused
    assert seen.complaints == () and seen.remarks == ()
    assert not set(without) & set(seen.features)
    entries = {one["name"]: one for one in found.package.shaders}
    assert [line.name for line in seen.lines] == list(entries)
    ran, chosen = [], {line.name for line in seen.lines if line.chosen}
    for line in seen.lines:
        entry = entries[line.name]
        withheld = [feature for feature in entry["features"] if feature in without]
        wide = entry["limits"]["maxComputeInvocationsPerWorkgroup"] > 256
        if line.browser.verdict == "skip":
            reason = str(line.browser.reason)
            assert withheld or wide, reason
            assert reason.startswith("needs the feature subgroups" if withheld else "needs maxCompute")
            continue
        assert not withheld
        assert line.browser.verdict == "pass"
        if line.native.verdict != "skip":
            assert line.native.verdict == line.browser.verdict
            assert line.native.max_abs_error is not None and line.browser.max_abs_error is not None
        ran.append(line.name)
    for cols in found.package.manifest["cols"]:
        fit = [
            f"{cols}-{name}"
            for name, traits in CLASSES.items()
            if f"{cols}-{name}" in ran and traits.software <= bool(seen.adapter["software"])
        ]
        assert fit[0] in chosen
        assert f"{cols}-portable" in ran, "the fallback of every browser"
    assert len(chosen) == len(found.package.manifest["cols"])
    return {name.partition("-")[2] for name in ran}


@pytest.mark.parametrize("export", COVERING, ids=str)
def test_every_shader_is_right(export: Export, browser: Browser, tmp_path: Path) -> None:
    folder = export.write(tmp_path / "package")
    assert {"portable", "subgroups", "software"} <= assert_right(folder, browser)
    fallback = assert_right(folder, browser, without=("subgroups",))
    assert fallback >= {"portable", "software"}
    assert not fallback & {"subgroups", "subgroups-1024", "software-subgroups"}


def changed_shader(folder: Path, old: str, new: str) -> None:
    """Change what runs in every shader, and the hashes, so that only answers can tell."""
    manifest_file, index_file = folder / "manifest.json", folder / "index.js"
    index = index_file.read_text(encoding="utf-8")
    assert old in index
    index_file.write_text(index.replace(old, new), encoding="utf-8")
    manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    texts = tint.run_node("texts.mjs", index_file)
    for shader in manifest["shaders"]:
        shader["embedded_sha256"] = sha256(texts[shader["name"]].encode()).hexdigest()
    manifest_file.write_text(json.dumps(manifest), encoding="utf-8")


def test_a_wrong_shader_is_seen(browser: Browser, chromium: Chromium, tmp_path: Path) -> None:
    folder = Export("rms_norm", (64,)).write(tmp_path / "package")
    changed_shader(folder, "inverseSqrt(", "1.00002*inverseSqrt(")
    found = verify.verify(folder, browser, quick=True)
    assert found.seen is not None and not found.passed
    for line in found.seen.lines:
        assert line.native.verdict == "pass" and line.browser.verdict == "fail"
        assert re.match(r"normal \(natively it passes\): y\[\d+, \d+\] is ", line.complaints[0])
    assert "64 columns: no chosen shader passed" in found.seen.complaints
    with opened(chromium, folder, "verify.html?quick") as page:
        report_of(page)
        assert page.locator("body").get_attribute("data-state") == "fail"
        assert re.match(r"\d+ of \d+ shaders failed", page.inner_text("#verdict"))
        assert "An application here would get 64-software, which is wrong." in page.inner_text("#status")


# --- verify.html -----------------------------------------------------------------------------------


def test_a_full_run_times_every_shader_beside_a_copy(folder: Path, browser: Browser) -> None:
    visit = browser.visit(folder, screenshot=True)
    package = verify.read_package(folder)
    seen = verify.judged(package, visit)
    assert seen.complaints == () and seen.remarks == ()
    report = visit.report
    assert report["error"] is None and report["seconds"] > 0
    copies = {copy["cols"]: copy for copy in report["copy"]}
    assert sorted(copies) == [61, 64]
    for entry in report["shaders"]:
        assert entry["skipped"] is None
        timing, copy = entry["timing"], copies[entry["cols"]]
        assert timing["method"] == "timestamp" if "timestamp-query" in report["features"] else "wall clock"
        assert len(timing["samples_ns"]) >= 3 and min(timing["samples_ns"]) > 0
        assert timing["p20_ns"] <= timing["median_ns"] <= timing["p80_ns"]
        assert (timing["rows"], timing["cols"]) == (copy["rows"], copy["cols"])
        problem = Problem(rows=timing["rows"], cols=timing["cols"], dtype="float16")
        assert timing["bytes"] == OPS["layer_norm"].minimum_bytes(problem)
        assert timing["gbps"] == pytest.approx(timing["bytes"] / timing["median_ns"])
        assert timing["percent_of_copy"] == pytest.approx(100 * timing["gbps"] / copy["gbps"])
    assert all(line.gbps and line.percent_of_copy for line in seen.lines)
    assert visit.screenshot is not None and len(visit.screenshot) > 50_000
    width, height = struct.unpack(">II", visit.screenshot[16:24])
    assert width == 1280 and 1000 < height < 6000


def test_the_page_shows_what_it_reports(folder: Path, chromium: Chromium) -> None:
    with opened(chromium, folder, "verify.html") as page:
        report = report_of(page)
        count = len(report["shaders"])
        assert page.locator("body").get_attribute("data-state") == "pass"
        assert page.inner_text("#verdict") == f"All {count} shaders are right here"
        assert page.inner_text("#title") == "layer_norm, 64, 61 columns, float16"
        assert "webnorm export layer_norm --cols 64 --cols 61 --dtype float16" in page.inner_text("footer")
        tiles = page.inner_text("#chosen")
        assert all(name in tiles for name in report["chosen"].values())
        table = page.inner_text("#shaders")
        assert all(entry["name"] in table for entry in report["shaders"])
        assert page.locator("#speed svg.chart").count() == 2
        assert page.locator("#speed svg.chart rect.bar").count() == count
        bars = page.locator("#speed svg.chart rect.bar").evaluate_all(
            "bars => bars.map((bar) => bar.getBoundingClientRect().width)"
        )
        assert all(0 < width < 1280 for width in bars)
        labels = page.locator("#speed svg.chart").evaluate_all(
            "charts => charts.map((chart) => chart.ariaLabel)"
        )
        for cols, label in zip((61, 64), sorted(labels), strict=True):
            assert label.startswith(f"GB/s for {cols} columns: ") and "copy " in label
        assert str(report["engine"]) in page.inner_text("#device")
        with page.expect_download() as download:
            page.click("#download")
        assert json.loads(Path(download.value.path()).read_text(encoding="utf-8")) == report
        page.click("#again")
        again = report_of(page)
        assert again["error"] is None and again["chosen"] == report["chosen"]


def test_without_timestamps_the_wall_clock_is_read(folder: Path, chromium: Chromium) -> None:
    with opened(chromium, folder, "verify.html?without=subgroups,timestamp-query") as page:
        report = report_of(page)
        assert report["error"] is None
        assert not {"subgroups", "timestamp-query"} & set(report["features"])
        timed = [entry["timing"] for entry in report["shaders"] if entry["skipped"] is None]
        assert timed and {timing["method"] for timing in timed} == {"wall clock"}
        assert "wall clock" in page.inner_text("#speed")
        assert page.get_by_text("cannot run here").first.is_visible()


NO_WEBGPU = "delete Navigator.prototype.gpu;"
NO_ADAPTER = "GPU.prototype.requestAdapter = async () => null;"
LOST = (
    "const request = GPUAdapter.prototype.requestDevice;"
    "GPUAdapter.prototype.requestDevice = async function (descriptor) {"
    "  const device = await request.call(this, descriptor);"
    "  setTimeout(() => device.destroy(), 0);"
    "  return device;"
    "};"
)
REFUSED = "GPUAdapter.prototype.requestDevice = async () => { throw new TypeError('no more'); };"
TROUBLES = pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (NO_WEBGPU, "This browser has no WebGPU: Chrome or Edge 113, Safari 26 and Firefox 141 or later have"),
        (NO_ADAPTER, "The browser has WebGPU but gives no adapter: the GPU or its driver is on its blocklist"),
        (REFUSED, "The browser refused the device: no more"),
        (LOST, "The browser lost the GPU while "),
    ],
    ids=("no WebGPU", "no adapter", "no device", "lost device"),
)


@TROUBLES
def test_a_page_that_cannot_check_says_why(
    first: str, sentence: str, folder: Path, chromium: Chromium
) -> None:
    with opened(chromium, folder, "verify.html", first=first) as page:
        report = report_of(page)
        assert report["error"].startswith(sentence)
        assert page.inner_text("#status") == report["error"]
        assert page.inner_text("#verdict") == "This could not be checked"
        assert page.locator("body").get_attribute("data-state") == "error"
        assert page.locator("#again").is_enabled()


def test_a_browser_whose_webgpu_is_off(folder: Path, lab_folder: Path) -> None:
    """As Chromium on Linux without its flag."""
    arguments = [argument for argument in browsing._ARGUMENTS if "webgpu" not in argument]
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_export_browser import *
with started({arguments!r}) as chromium:
    for folder, address in (({str(folder)!r}, "verify.html"), ({str(lab_folder)!r}, "index.html")):
        with opened(chromium, Path(folder), address) as page:
            error = report_of(page)["error"]
            assert "WebGPU" in error and page.inner_text("#status") == error, error
"""
    raise NotImplementedError(script)


def overflow(page: Page) -> int:
    """Pixels that a page is wider than its window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return wide


def test_a_report_fits_a_phone(folder: Path, chromium: Chromium) -> None:
    with opened(chromium, folder, "verify.html", width=PHONE) as page:
        assert report_of(page)["error"] is None
        assert overflow(page) <= 0
        # The vectors of a shader open below it.
        page.locator("#shaders button").first.click()
        assert page.get_by_text("a single row").first.is_visible()
        assert overflow(page) <= 0
    with opened(chromium, folder, "verify.html", width=PHONE, first=NO_WEBGPU) as page:
        report_of(page)
        assert overflow(page) <= 0


# --- the lab ---------------------------------------------------------------------------------------


def test_the_lab_runs_a_ladder_to_results_that_compare_reads(
    lab_folder: Path, chromium: Chromium, tmp_path: Path
) -> None:
    address = "index.html?auto=1&op=layer_norm&cols=256&dtype=float32&rows=64"
    with opened(chromium, lab_folder, address) as page:
        report_of(page)
        with page.expect_download() as download:
            page.click("#download")
        saved = tmp_path / "lab.json"
        download.value.save_as(saved)
        assert page.locator("#results svg.chart rect.bar").count() == 6
        assert overflow(page) <= 0
    report = results.read(saved)
    found = {(one.op, one.kernel): one for one in report.results}
    names = ("naive", "one_pass", "two_pass", "welford", "welford_subgroup", "registers")
    assert {kernel for op, kernel in found if op == "layer_norm"} == set(names)
    assert any(op == "copy" for op, _ in found)
    for one in found.values():
        assert one.status == "pass" and one.timed, one
        assert (one.problem.rows, one.problem.cols, one.problem.dtype) == (64, 256, "float32")
        assert one.bytes == OPS[one.op].minimum_bytes(one.problem)
    done = webnorm(["compare", str(saved), str(saved)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SAME") >= len(found)


def test_the_unstable_kernel_fails_as_its_header_says(lab_folder: Path, chromium: Chromium) -> None:
    address = "index.html?auto=1&op=layer_norm&cols=256&dtype=float32&rows=64&distribution=mean1000"
    with opened(chromium, lab_folder, address) as page:
        found = {one["kernel"]: one for one in report_of(page)["results"] if one["op"] == "layer_norm"}
        assert page.inner_text("#status").endswith(" 1 wrong as its header says.")
        assert page.inner_text("#result-layer_norm-one_pass") == "expected failure"
    unstable = found.pop("one_pass")
    assert unstable["status"] == "fail" and unstable["expected"] is True
    assert unstable["reason"].startswith("y[") and "median_ns" not in unstable
    assert {one["status"] for one in found.values()} == {"pass"}


def test_the_lab_runs_every_op_without_subgroups(lab_folder: Path, chromium: Chromium) -> None:
    address = "index.html?auto=1&all=1&subgroups=0&cols=1024&dtype=float16&rows=5"
    with opened(chromium, lab_folder, address) as page:
        report = report_of(page)
        assert page.locator("#results article").count() == len(NORMS)
    assert "subgroups" not in report["device"]["features"]
    assert {one["op"] for one in report["results"]} == set(OPS)
    skipped = {one["kernel"] for one in report["results"] if one["status"] == "skip"}
    wrong = [one for one in report["results"] if one["status"] not in ("pass", "skip")]
    assert skipped == {"welford_subgroup"} and wrong == []


def test_the_lab_shows_every_kernel_to_read(lab_folder: Path, chromium: Chromium) -> None:
    for first in ("", NO_WEBGPU):
        with opened(chromium, lab_folder, "index.html", width=PHONE, first=first) as page:
            page.wait_for_function("() => document.querySelectorAll('#kernels article').length > 0")
            if first:
                assert report_of(page)["error"].startswith("This browser has no WebGPU")
                assert page.locator("#run").is_disabled()
            for op, kernels in (("layer_norm", 6), ("rms_norm_backward", 3)):
                page.select_option("#op", op)
                page.wait_for_function(f"() => document.querySelectorAll('#kernels h3').length === {kernels}")
            page.locator("#kernels summary").first.click()
            assert "@compute" in page.locator("#kernels pre").first.inner_text()
            assert overflow(page) <= 0


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("auto=1&op=layernorm", "op is layernorm; expected one of layer_norm, layer_norm_backward, rms_norm,"),
        ("auto=1&cols=7", "cols is 7; expected one of 256, 1024, 4096"),
        ("rows=0", "rows: "),
    ],
)
def test_the_lab_names_what_there_is(
    query: str, sentence: str, lab_folder: Path, chromium: Chromium
) -> None:
    with opened(chromium, lab_folder, f"index.html?{query}") as page:
        assert report_of(page)["error"].startswith(sentence)
        assert page.inner_text("#status").startswith(sentence)


# --- what the documents show -----------------------------------------------------------------------


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def plainly_served(folder: Path) -> Iterator[str]:
    """A site as `python3 -m http.server` makes it, which allows scripts inside a page; gives its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


NO_ICON = "document.addEventListener('DOMContentLoaded', () => document.head.insertAdjacentHTML("
