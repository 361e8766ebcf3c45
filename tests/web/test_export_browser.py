"""Exported packages, the lab and the documented snippets in headless Chromium."""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from packages import COVERING, Export, block, bundle_with_immediates

import axe
from commands import webnorm
from headless import MISSING as NO_BROWSER
from headless import Handler, errors_of, launched, plainly_served
from pages import ROOT, blocks, commands
from patience import HANG_MS
from testbed import kernel_named
from webnorm.engines.launch import CHROMIUM_ARGUMENTS
from webnorm.kernels.headers.library import discover
from webnorm.lab.results import result_files
from webnorm.op.dtypes import DTYPES, STORAGE, Array, finfo
from webnorm.op.registry import OPS
from webnorm.ops.copy.problem import RowProblem
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.serving import serve_folder
from webnorm.web import tint, verify
from webnorm.web.browser.visits import PageVisitor
from webnorm.web.package import npm
from webnorm.web.package.manifest import CLASSES
from webnorm.web.package.reader import read_package

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Page, Playwright

MISSING = tint.tint_unavailable() or NO_BROWSER
# All these tests run in one process, so that the browser, the lab and the packages are made once.
pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.xdist_group("browser"),
]

NORMS = NORM_OPS
KERNELS_OF = {
    op.name: {kernel.name for kernel in discover() if kernel.op is op and kernel.takes_slices} for op in NORMS
}
PHONE = 360
NO_CLIPBOARD = "navigator.clipboard.writeText = () => Promise.reject(new Error('no'));"


@pytest.fixture(scope="module")
def browser() -> Iterator[PageVisitor]:
    with PageVisitor() as opened:
        yield opened


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def chromium(playwright: Playwright) -> Iterator[Chromium]:
    """A browser for pages that a test controls itself."""
    with launched(playwright, CHROMIUM_ARGUMENTS) as started:
        yield started


@contextmanager
def page_at(
    chromium: Chromium, url: str, *, width: int = 1280, first: str = "", complains: bool = False
) -> Iterator[Page]:
    """Open a page whose console must show no error unless it `complains`; `first` runs before the page."""
    context = chromium.new_context(viewport={"width": width, "height": 800})
    try:
        page = context.new_page()
        page.set_default_timeout(HANG_MS)
        errors = errors_of(page)
        if first:
            page.add_init_script(first)
        page.goto(url)
        yield page
        assert complains or errors == []
    finally:
        context.close()


@contextmanager
def opened(
    chromium: Chromium, folder: Path, address: str, *, width: int = 1280, first: str = ""
) -> Iterator[Page]:
    """Open a page of a folder, on a site with the same policy as `webnorm verify`."""
    with (
        serve_folder(folder) as server,
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


# --- every shader ----------------------------------------------------------------------------------


def test_the_packages_cover_every_option_and_type_of_every_op() -> None:
    for op in NORMS:
        asked = [one.request for one in COVERING if one.op == op.name]
        assert {request.dtype for request in asked} == {"float32", "float16", "bfloat16"}
        # zero_centered_weight is the weight_offset of 1.
        assert len({request.options.offset for request in asked}) > 1
        for option in {*op.options} - {"weight_offset", "zero_centered_weight"}:
            assert len({getattr(request.options, option) for request in asked}) > 1, f"{op.name} {option}"
        if not op.gradient:
            stored = {str(request.options.out_dtype)[:6] for request in asked}
            assert stored == {"None", "int8", "float8"}
    every = {one.request.options.out_dtype for one in COVERING}
    assert every == {None, "int8", "float8_e4m3fn", "float8_e5m2"}


def assert_right(folder: Path, browser: PageVisitor, without: tuple[str, ...] = ()) -> set[str]:
    """Assert that every shader that can run is right, as natively, and that the best is chosen.

    Return the classes of adapters whose shaders ran.
    """
    package = read_package(folder)
    assert verify.refused_by_tint(package) == ()
    seen = verify.browser_answers(package, browser, verify.PageOptions(without=without, quick=True))
    assert seen.complaints == () and seen.remarks == ()
    assert not set(without) & set(seen.features)
    entries = {one["name"]: one for one in package.shaders}
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
    for cols in package.manifest["cols"]:
        fit = [
            f"{cols}-{name}"
            for name, traits in CLASSES.items()
            if f"{cols}-{name}" in ran and traits.software <= bool(seen.adapter["software"])
        ]
        assert fit[0] in chosen
        assert f"{cols}-portable" in ran, "the fallback of every browser"
    assert len(chosen) == len(package.manifest["cols"])
    return {name.partition("-")[2] for name in ran}


@pytest.fixture(scope="module", params=COVERING, ids=str)
def covering(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Export, Path]:
    """Return one of the exports, and the folder of its package."""
    export: Export = request.param
    return export, export.write(tmp_path_factory.mktemp("package") / "package")


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm_backward"])
def test_a_package_with_immediates(
    op: str, browser: PageVisitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tint, wgpu and Chromium accept both of its shaders, and Chromium chooses the one with immediates."""
    export = Export(op, (70,), "float16")
    problem = export.request.task(70).problem
    bundle = bundle_with_immediates(kernel_named("naive", op), problem)
    monkeypatch.setattr(npm, "bundle_of", lambda request: bundle)
    package = read_package(export.write(tmp_path / "package"))
    assert verify.refused_by_tint(package) == ()
    assert package.shaders[0]["bindings"][0]["type"] == "immediate"
    seen = verify.browser_answers(package, browser, verify.PageOptions(quick=True))
    assert seen.complaints == () and seen.remarks == ()
    assert [(line.browser.verdict, line.chosen) for line in seen.lines] == [("pass", True), ("pass", False)]
    assert all(line.native.verdict == "pass" for line in seen.lines)


@pytest.mark.sampled(ids=["layer_norm-61-768-float16", "rms_norm-768-float32"])
def test_every_shader_is_right(covering: tuple[Export, Path], browser: PageVisitor) -> None:
    export, folder = covering
    assert {"portable", "subgroups", "software"} <= assert_right(folder, browser)
    # The choice without a feature depends neither on the type nor on the norm.
    if (export.op, export.cols) not in (("layer_norm", (4099,)), ("rms_norm_backward", (768,))):
        return
    fallback = assert_right(folder, browser, without=("subgroups",))
    assert fallback >= {"portable", "software"}
    assert not fallback & {"subgroups", "subgroups-1024"}


def changed_shader(folder: Path, old: str, new: str) -> None:
    """Change the text that runs in every shader, and its hashes, so that only the outputs differ."""
    manifest_file, index_file = folder / "manifest.json", folder / "index.js"
    index = index_file.read_text(encoding="utf-8")
    assert old in index
    index_file.write_text(index.replace(old, new), encoding="utf-8")
    manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    manifest["files"]["index.js"] = sha256(index_file.read_bytes()).hexdigest()
    texts = tint.run_node("texts.mjs", index_file)
    for shader in manifest["shaders"]:
        shader["embedded_sha256"] = sha256(texts[shader["name"]].encode()).hexdigest()
    manifest_file.write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.slow
def test_a_wrong_shader_is_seen(browser: PageVisitor, chromium: Chromium, tmp_path: Path) -> None:
    folder = Export("rms_norm", (64,)).write(tmp_path / "package")
    changed_shader(folder, "inverseSqrt(", "1.00002*inverseSqrt(")
    package = read_package(folder)
    assert verify.refused_by_tint(package) == ()
    seen = verify.browser_answers(package, browser, verify.PageOptions(quick=True))
    assert seen.complaints
    for line in seen.lines:
        # An adapter that lacks subgroups runs the other shaders natively.
        assert line.native.verdict == "pass" or "lacks subgroups" in (line.native.reason or "")
        natively = r" \(natively it passes\)" if line.native.verdict == "pass" else ""
        assert line.browser.verdict == "fail"
        assert re.match(rf"normal{natively}: y\[\d+, \d+\] is ", line.complaints[0])
    assert any(line.native.verdict == "pass" for line in seen.lines)
    assert "64 columns: no chosen shader passed" in seen.complaints
    with opened(chromium, folder, "verify.html?quick") as page:
        chosen = report_of(page)["chosen"]["64"]
        assert page.locator("body").get_attribute("data-state") == "fail"
        assert re.match(r"\d+ of \d+ shaders failed", page.inner_text("#verdict"))
        assert f"On this device an application gets {chosen}, which is wrong." in page.inner_text("#status")


# --- verify.html -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_run_times_every_shader_and_a_copy(folder: Path, browser: PageVisitor) -> None:
    visit = browser.visit(folder, screenshot=True)
    package = read_package(folder)
    seen = verify.compare_report(package, visit)
    assert seen.complaints == () and seen.remarks == ()
    report = visit.report
    assert report["error"] is None and report["seconds"] > 0
    copies = {copy["cols"]: copy for copy in report["copy"]}
    assert sorted(copies) == [61, 64]
    for entry in report["shaders"]:
        assert entry["skipped"] is None
        timing, copy = entry["timing"], copies[entry["cols"]]
        assert timing["method"] == "timestamp" if "timestamp-query" in report["features"] else "wall clock"
        assert timing["samples_ns"] and min(timing["samples_ns"]) > 0
        assert timing["p20_ns"] <= timing["median_ns"] <= timing["p80_ns"]
        assert (timing["rows"], timing["cols"]) == (copy["rows"], copy["cols"])
        problem = NormProblem(rows=timing["rows"], cols=timing["cols"], dtype="float16")
        assert timing["bytes"] == OPS["layer_norm"].minimum_bytes(problem)
        assert timing["gbps"] == pytest.approx(timing["bytes"] / timing["median_ns"])
        assert timing["percent_of_copy"] == pytest.approx(100 * timing["gbps"] / copy["gbps"])
    assert all(line.gbps and line.percent_of_copy for line in seen.lines)
    assert visit.screenshot is not None and len(visit.screenshot) > 50_000
    width, height = struct.unpack(">II", visit.screenshot[16:24])
    assert width == 1280 and 1000 < height < 6000


@pytest.mark.slow
def test_the_page_shows_its_report(folder: Path, chromium: Chromium) -> None:
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


@pytest.mark.slow
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
NO_SUBGROUPS = (
    "const adapter = GPU.prototype.requestAdapter;"
    "GPU.prototype.requestAdapter = async function () {"
    "  const found = await adapter.call(this);"
    "  const value = new Set([...found.features].filter((name) => name !== 'subgroups'));"
    "  return Object.defineProperty(found, 'features', { value });"
    "};"
)
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
        (
            NO_WEBGPU,
            "This browser has no WebGPU (navigator.gpu is missing): use Chrome or Edge 113, Safari 26",
        ),
        (
            NO_ADAPTER,
            "WebGPU gives no adapter: hardware acceleration is off, or the GPU or its driver is on the",
        ),
        (REFUSED, "The browser refused the device: no more"),
        (LOST, "The browser lost the GPU while "),
    ],
    ids=("no WebGPU", "no adapter", "no device", "lost device"),
)


@pytest.mark.slow
@TROUBLES
def test_a_page_that_cannot_check_says_why(
    first: str, sentence: str, folder: Path, chromium: Chromium
) -> None:
    with opened(chromium, folder, "verify.html", first=first) as page:
        report = report_of(page)
        assert report["error"].startswith(sentence)
        assert page.inner_text("#status") == report["error"]
        assert page.inner_text("#verdict") == "The check could not run"
        assert page.locator("body").get_attribute("data-state") == "error"
        assert page.locator("#again").is_enabled()


@pytest.mark.slow
def test_a_browser_whose_webgpu_is_off(folder: Path, lab_folder: Path, playwright: Playwright) -> None:
    """Run Chromium as on Linux without its flag."""
    arguments = [argument for argument in CHROMIUM_ARGUMENTS if "webgpu" not in argument]
    arguments.append("--disable-features=WebGPU,Vulkan")
    with launched(playwright, arguments) as chromium:
        for where, address in ((folder, "verify.html"), (lab_folder, "index.html")):
            with opened(chromium, where, address) as page:
                error = report_of(page)["error"]
                assert error.startswith(("This browser has no WebGPU", "WebGPU gives no adapter"))
                assert page.inner_text("#status") == error


@pytest.mark.slow
def test_a_page_that_cannot_start_says_why(folder: Path, chromium: Chromium, tmp_path: Path) -> None:
    half = tmp_path / "half"
    shutil.copytree(folder, half)
    (half / "page" / "chart.js").unlink()
    with serve_folder(half) as server:
        for url, sentence in (
            (
                f"{folder.as_uri()}/verify.html",
                "Browsers load no modules from file://. Serve this folder over",
            ),
            (f"{server.url}/verify.html", f"{server.url}/page/verify.js did not load: check that the"),
        ):
            with page_at(chromium, url, complains=True) as page:
                error = report_of(page)["error"]
                assert error.startswith(sentence)
                assert page.inner_text("#status") == error
                assert page.inner_text("#verdict") == "The page could not start"


def overflow(page: Page) -> int:
    """Return how many pixels a page is wider than its window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return wide


@pytest.mark.slow
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
    address = "index.html?run&op=rms_norm&cols=256&dtype=float32&rows=64"
    with opened(chromium, lab_folder, address) as page:
        report_of(page)
        with page.expect_download() as download:
            page.click("#download")
        saved = tmp_path / "lab.json"
        download.value.save_as(saved)
        assert page.locator("#results svg.chart rect.bar").count() == len(KERNELS_OF["rms_norm"])
        assert overflow(page) <= 0
    report = result_files.read(saved)
    found = {(one.op, one.kernel): one for one in report.results}
    assert {kernel for op, kernel in found if op == "rms_norm"} == KERNELS_OF["rms_norm"]
    # The reference is the copy with the fastest constants, as natively.
    copies = [one for one in report.results if one.op == "copy"]
    assert len({tuple(one.constants.items()) for one in copies}) == len(copies) > 1
    assert max(one.percent_of_copy or 0 for one in copies) == 100
    for one in found.values():
        assert one.status == "pass" and one.timed, one
        assert (one.problem.rows, one.problem.cols, one.problem.dtype) == (64, 256, "float32")
        assert one.bytes == OPS[one.op].minimum_bytes(one.problem)
    done = webnorm(["compare", str(saved), str(saved)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SAME") >= len(found)


def test_the_unstable_kernel_fails_as_its_header_says(lab_folder: Path, chromium: Chromium) -> None:
    address = "index.html?run&op=layer_norm&cols=256&dtype=float32&rows=64&distribution=mean1000"
    with opened(chromium, lab_folder, address) as page:
        found = {one["kernel"]: one for one in report_of(page)["results"] if one["op"] == "layer_norm"}
        assert page.inner_text("#status").endswith(" 1 wrong as the header states.")
        assert page.inner_text("#result-layer_norm-one_pass") == "expected failure"
    unstable = found.pop("one_pass")
    assert unstable["status"] == "fail" and unstable["expected"] is True
    assert unstable["reason"].startswith("y[") and "median_ns" not in unstable
    assert {one["status"] for one in found.values()} == {"pass"}


def assert_overview(page: Page, lab: Path) -> None:
    """Check the overview of all ops, and the text to copy in a browser that refuses the clipboard."""
    recorded = json.loads((lab / "page" / "lab_recorded.json").read_text(encoding="utf-8"))
    problems = [device["problems"] for device in recorded.values()]
    rows = page.locator("#devices tbody tr")
    ops = rows.locator("td:first-child").all_inner_texts()
    assert sorted(ops) == sorted(op.name for op in NORMS)
    # One mark for each device with a record of an op, and one in the legend.
    known = [own for own in problems if any(f"{op}-1024-float16" in own for op in ops)]
    marks = sum(f"{op}-1024-float16" in own for own in known for op in ops)
    assert known and page.locator("#devices .dot").count() == marks + len(ops) + len(known) + 1
    share = problems[0]["rms_norm-1024-float16"]["percent_of_copy"]
    assert f"{share:.0f} %" in rows.nth(ops.index("rms_norm")).inner_text()
    page.click("#share")
    page.wait_for_selector("#summary:focus")
    assert page.input_value("#summary").count(": fastest here is ") == len(ops)
    assert page.inner_text("#shared").startswith("The browser does not let this page copy. ")


def test_the_lab_runs_every_op_on_a_phone_without_subgroups(lab_folder: Path, chromium: Chromium) -> None:
    address = "index.html?run&all&subgroups=0&cols=1024&dtype=float16&rows=5"
    with opened(chromium, lab_folder, address, width=PHONE, first=NO_CLIPBOARD) as page:
        report = report_of(page)
        assert page.locator("#results article").count() == len(NORMS)
        assert_overview(page, lab_folder)
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        page.evaluate(axe.rules())
        assert overflow(page) <= 0 and axe.violations(page) == []
        page.emulate_media(color_scheme="dark")
        assert axe.violations(page, "color-contrast") == []
    assert "subgroups" not in report["device"]["features"]
    assert {one["op"] for one in report["results"]} == {"copy", *(op.name for op in NORMS)}
    skipped = {one["kernel"] for one in report["results"] if one["status"] == "skip"}
    wrong = [one for one in report["results"] if one["status"] not in ("pass", "skip")]
    assert skipped == {"welford_subgroup", "row_in_registers"} and wrong == []


def test_the_lab_offers_no_subgroups_that_the_adapter_lacks(lab_folder: Path, chromium: Chromium) -> None:
    with opened(chromium, lab_folder, "index.html", first=NO_SUBGROUPS) as page:
        card = page.locator("#kernels article[data-kernel=welford_subgroup]")
        card.get_by_text("Not run here: needs the feature subgroups, which the adapter lacks.").wait_for()
        assert page.locator("#subgroups").is_hidden()
        page.select_option("#cols", "1024")
        assert "subgroups" not in page.url


def test_the_lab_shows_every_kernel_to_read(lab_folder: Path, chromium: Chromium) -> None:
    for first in ("", NO_WEBGPU):
        with opened(chromium, lab_folder, "index.html", width=PHONE, first=first) as page:
            page.wait_for_function("() => document.querySelectorAll('#kernels article').length > 0")
            if first:
                assert report_of(page)["error"].startswith("This browser has no WebGPU")
                assert page.locator("#run").is_disabled()
            for op in ("layer_norm", "rms_norm_backward"):
                page.select_option("#op", op)
                count = len(KERNELS_OF[op])
                page.wait_for_function(f"() => document.querySelectorAll('#kernels h3').length === {count}")
            page.locator("#kernels summary").first.click()
            page.locator("#kernels pre").first.get_by_text("@compute").first.wait_for()
            # The open text stays open in another type.
            page.select_option("#dtype", "float16")
            page.locator("#kernels pre").first.get_by_text("unpack2x16float").first.wait_for()
            assert overflow(page) <= 0


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            "run&op=layernorm",
            "op is layernorm; expected one of layer_norm, layer_norm_backward, rms_norm,",
        ),
        ("run&cols=7", "cols is 7; expected one of 256, 768, 1024, 4096, 8192"),
        ("options=dh", "options is dh; expected one of residual, return_stats, zero_centered_weight, "),
        ("op=rms_norm&options=residual&cols=256", "cols is 256; expected one of 1024"),
        ("rows=0", "rows is 0; expected a whole number from 1 to 4194304"),
        ("seed=one", "seed is one; expected a whole number from 0 to 4294967295"),
        ("kernels=naive,fast", "kernels is fast; expected some of naive, "),
        ("run=maybe", "run is maybe; expected 1, 0 or nothing"),
        ("run&colour=red", "the address has colour=red; expected op, cols, dtype, "),
        ("run&kernels=", "no kernel is selected; select at least one"),
    ],
)
def test_the_lab_names_the_possible_values(
    query: str, sentence: str, lab_folder: Path, chromium: Chromium
) -> None:
    with opened(chromium, lab_folder, f"index.html?{query}") as page:
        assert report_of(page)["error"].startswith(sentence)
        assert page.inner_text("#status").startswith(sentence)


def choice_of(page: Page) -> dict[str, Any]:
    """Return the selection in the lab's controls."""
    choice: dict[str, Any] = page.evaluate(
        """() => ({
          ...Object.fromEntries(
            ["op", "options", "cols", "dtype", "rows", "distribution", "seed"].map((id) =>
              [id, document.getElementById(id).value])),
          subgroups: document.getElementById("subgroups").checked,
          kernels: [...document.querySelectorAll("#kernels input:checked")].map((box) => box.ariaLabel),
        })"""
    )
    return choice


def shown_kernels(page: Page) -> None:
    page.wait_for_function("() => document.querySelectorAll('#kernels article').length > 0")


def test_an_address_restores_the_selection(lab_folder: Path, chromium: Chromium) -> None:
    with opened(chromium, lab_folder, "index.html") as page:
        shown_kernels(page)
        assert "?" not in page.url
        page.select_option("#options", "weight=false,bias=false")
        page.select_option("#dtype", "bfloat16")
        page.select_option("#distribution", "mean100")
        for name, value in (("#rows", "33"), ("#seed", "7")):
            page.fill(name, value)
            page.press(name, "Tab")
        page.uncheck("#subgroups")
        kernels = page.locator("#kernels input")
        for at in range(1, kernels.count()):
            kernels.nth(at).uncheck()
        chosen, address = choice_of(page), page.url.rpartition("/")[2]
    assert chosen["kernels"] == ["Run naive"] and chosen["cols"] == "1024"
    assert address == (
        "index.html?op=layer_norm&cols=1024&dtype=bfloat16&distribution=mean100&rows=33&seed=7"
        "&options=weight%3Dfalse,bias%3Dfalse&kernels=naive&subgroups=0"
    )
    with opened(chromium, lab_folder, f"{address}&run") as page:
        report = report_of(page)
        assert choice_of(page) == chosen
    one = next(each for each in report["results"] if each["op"] == "layer_norm")
    assert {each["kernel"] for each in report["results"]} == {"copy", "naive"}
    assert (one["status"], one["problem"]["seed"], one["problem"]["rows"]) == ("pass", 7, 33)
    assert not one["problem"]["options"]["weight"] and one["problem"]["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    "query",
    [
        "op=layer_norm&options=residual&dtype=bfloat16",
        "op=rms_norm&options=return_stats&dtype=float16",
        "op=layer_norm_backward&options=dh&dtype=bfloat16",
        "op=rms_norm_backward&options=saved_stats=false&dtype=float32",
    ],
)
def test_options_are_checked_and_timed(query: str, lab_folder: Path, chromium: Chromium) -> None:
    with opened(chromium, lab_folder, f"index.html?run&{query}&kernels=naive,registers&rows=9") as page:
        report = report_of(page)
        assert {one["status"] for one in report["results"]} == {"pass"}, report
        measured = [one for one in report["results"] if one["op"] != "copy"]
        assert {one["kernel"] for one in measured} == {"naive", "registers"}
        asked = dict(part.split("=", 1) for part in query.split("&"))
        op = OPS[asked["op"]]
        options = op.defaults.changed([asked["options"]])
        for one in measured:
            assert NormOptions(**one["problem"]["options"]) == options
        assert str(options) in page.inner_text("#results h3")


@pytest.mark.parametrize("software", [True, False], ids=("software", "gpu"))
def test_native_and_page_measure_the_same_problems(
    software: bool, lab_folder: Path, chromium: Chromium, tmp_path: Path
) -> None:
    """The page suggests the default shapes of `webnorm bench` for these columns."""
    index = json.loads((lab_folder / "bundles" / "index.json").read_text(encoding="utf-8"))
    for op in NORMS:
        for rows, cols in RowProblem.default_sizes(software, quick=False):
            offered = [one for one in index["bundles"] if (one["op"], one["cols"]) == (op.name, cols)]
            assert {one["dtype"] for one in offered if not one["options"]} == set(STORAGE)
            assert {one["rows"]["software" if software else "gpu"] for one in offered} == {rows}
    assert (
        index["first_cols"]["software" if software else "gpu"]
        == RowProblem.default_sizes(software, False)[0][1]
    )
    if not software:
        return
    address = "index.html?run&op=layer_norm_backward&cols=256&kernels=naive"
    with opened(chromium, lab_folder, address) as page:
        saved = tmp_path / "page.json"
        saved.write_text(json.dumps(report_of(page)), encoding="utf-8")
    (one,) = [one for one in result_files.read(saved).results if one.op == "layer_norm_backward"]
    rows = dict((c, r) for r, c in RowProblem.default_sizes(software=True, quick=False))[256]
    assert one.problem == OPS["layer_norm_backward"].problem(rows, 256)


# Simulated timestamps: samples take a millisecond each, and half of them NOISE milliseconds more.
CLOCK = """
const mapped = GPUBuffer.prototype.getMappedRange;
let samples = 0;
GPUBuffer.prototype.getMappedRange = function (...given) {
  if (this.size !== 16) return mapped.apply(this, given);
  return new BigUint64Array([0n, BigInt(1e6 * (1 + (Math.floor(samples++ / 5) % 2) * NOISE))]).buffer;
};
"""


@pytest.mark.parametrize("noise", [0, 3])
def test_a_noisy_copy_is_reported_with_advice(noise: int, lab_folder: Path, chromium: Chromium) -> None:
    address = "index.html?run&cols=256&rows=64&kernels=naive,registers"
    with opened(chromium, lab_folder, address, first=CLOCK.replace("NOISE", str(noise))) as page:
        results = {one["kernel"]: one for one in report_of(page)["results"]}
        banner = page.locator("#results .banner")
        assert banner.count() == bool(noise) == ("noisy" in results["naive"]["flags"])
        if noise:
            assert banner.get_attribute("role") == "alert"
            text = banner.inner_text()
            assert text.startswith("These times are unreliable: the copy's samples scatter by ")
            for words in ("more than 20 % is noise", "Close other tabs", "plug the laptop in", "run again"):
                assert words in banner.inner_text()
        # The table contains the ends of the whiskers.
        row = page.locator("#results tbody tr", has_text="naive")
        low, high = row.locator("td[data-label='p20 to p80']").inner_text().split(" to ")
        assert (low == high.split()[0]) == (noise == 0) and high.endswith("s")
        whisker = page.locator("#results svg g").first.locator(".whisker").first
        ends = [float(str(whisker.get_attribute(name)).rstrip("%")) for name in ("x1", "x2")]
        assert (ends[0] == ends[1]) == (noise == 0) and ends[0] <= ends[1]


def test_the_focus_stays(lab_folder: Path, chromium: Chromium) -> None:
    def focused() -> str:
        place: str = page.evaluate("() => document.activeElement.id || document.activeElement.ariaLabel")
        return place

    with opened(chromium, lab_folder, "index.html?cols=256&rows=16&kernels=naive") as page:
        shown_kernels(page)
        for control, key in (("#op", "r"), ("#subgroups", "Space"), ("#rows", "ArrowUp")):
            page.focus(control)
            page.keyboard.press(key)
            assert focused() == control[1:]
        page.get_by_label("Run registers").focus()
        page.keyboard.press("Space")
        assert focused() == "Run registers"
        for control in ("#run", "#all"):
            page.focus(control)
            page.keyboard.press("Enter")
            page.wait_for_function("() => document.body.dataset.state === 'running'")
            assert focused() == control[1:]
            # A second press does nothing, and the focus stays.
            page.keyboard.press("Enter")
            page.focus("#stop")
            page.keyboard.press("Enter")
            report_of(page)
            assert focused() == "stop"
            page.focus("#download")
            with page.expect_download():
                page.keyboard.press("Enter")
            assert focused() == "download"
        page.focus("#run")
        page.keyboard.press("Enter")
        report_of(page)
        assert focused() == "run"


def test_a_click_that_leaves_a_changed_field_is_not_lost(lab_folder: Path, chromium: Chromium) -> None:
    with opened(chromium, lab_folder, "index.html?cols=256&rows=16&kernels=naive") as page:
        shown_kernels(page)
        box = page.get_by_label("Run registers")
        assert not box.is_checked()
        page.focus("#rows")
        page.keyboard.type("1")
        box.hover()
        page.mouse.down()
        # The change of the field is handled before the mouse button is released.
        page.wait_for_function("() => !location.search.includes('rows=16&')")
        page.mouse.up()
        assert box.is_checked() and "registers" in page.url


def test_cards_of_another_choice_keep_the_focus_and_the_open_text(
    lab_folder: Path, chromium: Chromium
) -> None:
    with opened(chromium, lab_folder, "index.html?cols=256&rows=16") as page:
        shown_kernels(page)
        card = page.locator("#kernels article", has=page.get_by_label("Run registers"))
        card.locator("summary").click()
        page.get_by_label("Run registers").focus()
        page.evaluate("() => { window.before = document.querySelector('#kernels article'); }")
        page.evaluate(
            "() => { const box = document.getElementById('subgroups'); box.checked = !box.checked;"
            " box.dispatchEvent(new Event('change', { bubbles: true })); }"
        )
        page.wait_for_function("() => !window.before.isConnected")
        assert page.evaluate("() => document.activeElement.ariaLabel") == "Run registers"
        assert card.locator("details").get_attribute("open") is not None


# An adapter that claims to be a GPU, and the labels of the bound buffers.
A_GPU = """
for (const name of ["vendor", "architecture", "device", "description"]) {
  Object.defineProperty(GPUAdapterInfo.prototype, name, { get: () => "made up" });
}
Object.defineProperty(GPUAdapterInfo.prototype, "isFallbackAdapter", { get: () => false });
window.bound = [];
const make = GPUDevice.prototype.createBindGroup;
GPUDevice.prototype.createBindGroup = function (descriptor) {
  window.bound.push(descriptor.entries.at(-1).resource.buffer.label);
  return make.call(this, descriptor);
};
"""


def test_on_a_gpu_a_dispatch_waits_for_the_one_before(lab_folder: Path, chromium: Chromium) -> None:
    """Alternating sets of buffers could run at the same time, so all bind a buffer that each may write."""
    address = "index.html?run&op=layer_norm_backward&cols=256&rows=1024&kernels=naive"
    with opened(chromium, lab_folder, address, first=A_GPU) as page:
        page.wait_for_function("() => document.getElementById('status').textContent.startsWith('Timing')")
        page.click("#stop")
        report = report_of(page)
        assert set(page.evaluate("() => window.bound")) == {"order"}
    assert report["device"]["type"] == "GPU"
    assert {one["status"] for one in report["results"]} == {"pass"}


# Sets of buffers small enough for several on a software adapter, and a short time.
SMALL = {"buffers.js": ("2 * LARGEST_CACHE", "2 ** 21"), "verify_package.js": ("32 * 2 ** 20", "2 ** 18")}


@pytest.mark.slow
def test_on_a_gpu_a_package_is_timed_as_the_lab_is(folder: Path, chromium: Chromium, tmp_path: Path) -> None:
    """Checks use the pipelines of an app; timed pipelines and the copy bind the ordering buffer."""
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    for name, (old, new) in SMALL.items():
        script = own / "page" / name
        assert old in script.read_text()
        script.write_text(script.read_text().replace(old, new))
    with opened(chromium, own, "verify.html", first=A_GPU) as page:
        report = report_of(page)
        bound = page.evaluate("() => window.bound")
    first = bound.index("order")
    assert first > 0 and set(bound[first:]) == {"order"}, bound
    assert report["error"] is None and len(report["copy"]) == 2
    assert all(one["verdict"] == "pass" and one["timing"]["gbps"] > 0 for one in report["shaders"])


@pytest.mark.parametrize(
    ("first", "sentence", "linux"),
    [
        (
            "Object.defineProperty(window, 'isSecureContext', { value: false });",
            "WebGPU needs a secure context: open this page over https:// or from localhost.",
            False,
        ),
        (NO_WEBGPU, "This browser has no WebGPU (navigator.gpu is missing): ", True),
        (NO_ADAPTER, "WebGPU gives no adapter: ", True),
        (
            f"{NO_ADAPTER}; Object.defineProperty(navigator, 'userAgent', {{ value: 'Macintosh' }});",
            "WebGPU gives no adapter: ",
            False,
        ),
    ],
    ids=("insecure", "no WebGPU", "no adapter", "no adapter on a Mac"),
)
def test_the_lab_names_the_flags_for_linux(
    first: str, sentence: str, linux: bool, lab_folder: Path, chromium: Chromium
) -> None:
    with opened(chromium, lab_folder, "index.html", first=first) as page:
        error = report_of(page)["error"]
        assert error.startswith(sentence) and page.inner_text("#status") == error
        assert (
            "chrome://flags/#enable-unsafe-webgpu" in error
            and "--enable-unsafe-webgpu --enable-features=Vulkan" in error
        ) == linux


# --- code of the documentation ---------------------------------------------------------------------


class _Plain(Handler):
    def do_GET(self) -> None:
        # Browsers request this by themselves.
        if self.path == "/favicon.ico":
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
        else:
            super().do_GET()


FAILING = """
addEventListener("error", (event) => { window.failure = event.message; });
addEventListener("unhandledrejection", (event) => { window.failure = event.reason.message; });
"""


@contextmanager
def shown(chromium: Chromium, folder: Path, name: str) -> Iterator[Page]:
    """Open a page on a site like `python3 -m http.server`, which allows inline scripts."""
    with (
        plainly_served(folder, _Plain) as url,
        page_at(chromium, f"{url}/{name}", first=FAILING) as page,
    ):
        yield page


def wait(page: Page, condition: str) -> None:
    """Wait until a snippet shows its result, or fails."""
    page.wait_for_function(f"() => window.failure !== undefined || {condition}")
    assert page.evaluate("window.failure") is None


def titled(page: Page) -> str:
    """Return the title that a snippet sets in the end."""
    wait(page, "document.title !== ''")
    return page.title()


def test_the_snippet_of_the_readme_is_right(chromium: Chromium, tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    (export,) = (command.words[1:] for command in commands(readme) if command.words[1] == "export")
    done = webnorm(export, tmp_path)
    assert done.returncode == 0, done.stderr
    (page_text,) = blocks(readme, "html")
    (tmp_path / "dist" / "index.html").write_text(page_text, encoding="utf-8")
    x = np.arange(768)
    with shown(chromium, tmp_path, "dist/index.html") as page:
        wait(page, "document.body?.textContent.includes('y[0]')")
        shown_text = page.inner_text("body")
    assert float(shown_text.removeprefix("y[0] is ")) == pytest.approx(
        (x[0] - x.mean()) / np.sqrt(x.var() + 1e-5), abs=6e-5
    )


@pytest.mark.slow
def test_the_snippet_of_the_export_page_is_right(chromium: Chromium, tmp_path: Path) -> None:
    Export("layer_norm", (768,), "float16").write(tmp_path / "dist" / "ln")
    script = block(ROOT / "docs" / "export.md", "js")
    (tmp_path / "page.html").write_text(
        f'<!doctype html><script type="module">{script}document.title = norm.shader.name;</script>',
        encoding="utf-8",
    )
    with shown(chromium, tmp_path, "page.html") as page:
        assert titled(page).startswith("768-")


SHOWN_DEVICE = """<!doctype html><script type="module">
  import { requestDevice } from "./dist/ln/index.js";
  const got = requestDevice().then(({ features }) => [...features].join(" "));
  document.title = await got.catch((error) => error.message);
</script>"""


@pytest.mark.slow
def test_request_device_in_a_page(
    folder: Path, chromium: Chromium, playwright: Playwright, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "dist" / "ln")
    (tmp_path / "page.html").write_text(SHOWN_DEVICE, encoding="utf-8")
    with shown(chromium, tmp_path, "page.html") as page:
        assert "subgroups" in titled(page).split()
    off = [argument for argument in CHROMIUM_ARGUMENTS if "webgpu" not in argument]
    with launched(playwright, off) as without, shown(without, tmp_path, "page.html") as page:
        said = titled(page)
    assert said.startswith("layer_norm: WebGPU gives no adapter: ")
    # The browser lacks these flags, but only on Linux.
    assert ("--enable-unsafe-webgpu --enable-features=Vulkan" in said) == (sys.platform == "linux")


def ones(export: Export) -> tuple[NormProblem, dict[str, Array]]:
    """Return a problem of four rows whose inputs are all 1."""
    op, problem = OPS[export.op], replace(export.request.task(export.cols[0]).problem, rows=4)
    return problem, {
        tensor.name: np.ones(tensor.shape_in(problem), DTYPES[tensor.dtype(problem)])
        for tensor in op.present(problem)
        if tensor.access == "read"
    }


@pytest.mark.sampled(ids=["layer_norm-61-768-float16"])
def test_the_snippet_of_a_package_is_right(covering: tuple[Export, Path], chromium: Chromium) -> None:
    """The snippet shows the first element of the main output, as a number or as its bits."""
    export, folder = covering
    (folder / "snippet.html").write_text(block(folder / "README.md", "html"), encoding="utf-8")
    with shown(chromium, folder, "snippet.html") as page:
        name, _, code = titled(page).partition("[0] is ")
    op = OPS[export.op]
    problem, arrays = ones(export)
    output = op.outputs(problem)[0]
    assert name == output.name
    dtype = output.dtype(problem)
    if dtype == "float32":
        got = float(code)
    else:
        stored = np.array(int(code)).astype(f"{'i' if dtype == 'int8' else 'u'}{DTYPES[dtype].itemsize}")
        got = float(stored.view(DTYPES[dtype]))
    if "saved_stats" in export.options:
        # No row has statistics that are all 1.
        assert np.isfinite(got)
        return
    answer = op.reference(arrays, problem)[name]
    digits = 0.0 if dtype == "int8" else float(finfo(dtype).eps)
    close = 0.5 if dtype == "int8" else 1e-6 * float(answer.error_scale[0, 0])
    assert got == pytest.approx(answer.value[0, 0], rel=digits, abs=close)


def test_the_snippet_for_buffers_of_ones_own_is_right(chromium: Chromium, tmp_path: Path) -> None:
    """Run the snippet with the code that it assumes: onnxruntime-web's device, buffers, rows."""
    folder = Export("rms_norm", (64,), options=("residual",)).write(tmp_path / "package")
    *_, script = re.findall(
        r"^```js\n(.*?)^```", (folder / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (folder / "snippet.html").write_text(
        f"""<!doctype html><script type="module">
  import {{ createRmsNorm, deviceDescriptor }} from "./index.js";
  const adapter = await navigator.gpu.requestAdapter();
  const own = await adapter.requestDevice(deviceDescriptor(adapter));
  const ort = {{ env: {{ webgpu: {{ device: Promise.resolve(own) }} }} }};
  const rows = 3;
  const buffer = (size, value) => {{
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC;
    const made = own.createBuffer({{ size: 4 * size, usage, mappedAtCreation: true }});
    new Float32Array(made.getMappedRange()).fill(value);
    made.unmap();
    return made;
  }};
  const [x, residual, weight] = [buffer(rows * 64, 1), buffer(rows * 64, 2), buffer(64, 5)];
  const [y, h] = [buffer(rows * 64, 0), buffer(rows * 64, 0)];
{script}
  const {{ MAP_READ, COPY_DST }} = GPUBufferUsage;
  const staging = own.createBuffer({{ size: y.size, usage: MAP_READ | COPY_DST }});
  const copying = own.createCommandEncoder();
  copying.copyBufferToBuffer(y, 0, staging, 0, y.size);
  own.queue.submit([copying.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  document.title = Array.from(new Float32Array(staging.getMappedRange())).join(" ");
</script>""",
        encoding="utf-8",
    )
    with shown(chromium, folder, "snippet.html") as page:
        got = np.array(titled(page).split(), np.float64)
    np.testing.assert_allclose(got, np.full(3 * 64, 5.0), rtol=1e-6)
