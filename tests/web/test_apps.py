"""The examples of docs/apps.md in headless Chromium: their output, their requests and their reads."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npm_tools import PAGE, needs_npm

from headless import CANVAS, needs_browser, plainly_served, started
from pages import ROOT
from patience import HANG_MS
from webnorm.op.dtypes import Array

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# All these tests run in one process, so that packages are installed once.
in_a_browser = pytest.mark.xdist_group("npm")
# The rounding error of numbers of up to 6, doubled by the model of onnxruntime.
MOST = 1e-5
COUNT_READS = """
window.reads = 0;
const mapAsync = GPUBuffer.prototype.mapAsync;
GPUBuffer.prototype.mapAsync = function (mode, ...rest) {
  if (mode & GPUMapMode.READ) window.reads += 1;
  return mapAsync.call(this, mode, ...rest);
};
"""
SOME_FRAMES = """async () => {
  for (let i = 0; i < 10; i++) await new Promise(requestAnimationFrame);
}"""


def test_the_page_shows_the_code_that_is_run() -> None:
    """Each block that names a file is a part of that file. The blocks of the three apps are whole files."""
    shown = re.findall(r"<!-- (examples/\S+) -->\n```\w+\n(.*?)```", PAGE.read_text(), re.S)
    for name, block in shown:
        assert block in (ROOT / name).read_text(encoding="utf-8"), name
    whole = {name for name, block in shown if block == (ROOT / name).read_text(encoding="utf-8")}
    assert {
        f"examples/{path}" for path in ("plain/main.js", "vite/src/main.ts", "onnxruntime/main.js")
    } <= whole


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started(*CANVAS) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def url(apps: Path) -> Iterator[str]:
    with plainly_served(apps) as found:
        yield found


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """Open a page; it must request nothing from elsewhere, find every file, and throw nothing."""
    page = browser.new_page()
    server, faults = "/".join(address.split("/")[:3]), []
    page.add_init_script(COUNT_READS)
    page.on("request", lambda asked: faults.append(asked.url) if not asked.url.startswith(server) else None)
    page.on("response", lambda got: faults.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(address)
    yield page
    assert [fault for fault in faults if not fault.startswith(("data:", f"blob:{server}"))] == []
    page.close()


def rows(page: Page, count: int) -> list[list[str]]:
    """Return the table's cells, once it has `count` rows or the page shows an error."""
    page.wait_for_function(
        """(count) => document.querySelectorAll("tbody tr").length === count
          || /: /.test(document.querySelector("output").textContent)""",
        arg=count,
        timeout=HANG_MS,
    )
    found: list[list[str]] = page.eval_on_selector_all(
        "tbody tr", "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert len(found) == count, page.inner_text("output")
    return found


def last_error(page: Page) -> float:
    """Return the largest error that the page shows in the end."""
    page.wait_for_function(
        "() => /largest error|: /.test(document.querySelector('output').textContent)", timeout=HANG_MS
    )
    said = page.inner_text("output")
    found = re.search(r"largest error (\d\.\de-\d+)$", said)
    assert found, said
    return float(found[1])


@in_a_browser
@needs_npm
@needs_browser
def test_a_plain_page(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/plain/") as page:
        means = rows(page, 4)
        assert [float(mean) for mean, _ in means] == [0, 1e2, 1e4, 1e6]
        assert max(float(error) for _, error in means) < MOST
        assert page.evaluate("reads") == len(means)


def picture(page: Page, selector: str) -> Array:
    """Return a screenshot of a canvas in grey."""
    from matplotlib.image import imread

    seen: Array = imread(io.BytesIO(page.locator(selector).screenshot()))[..., :3].mean(axis=2)
    return seen


@in_a_browser
@needs_npm
@needs_browser
def test_vite_and_typescript(browser: Browser, url: str) -> None:
    """Stripes hide the rings of x. In y only the rings are left, so its rows are equally bright."""
    pytest.importorskip("matplotlib")
    with opened(browser, f"{url}/vite/dist/") as page:
        assert last_error(page) < MOST
        page.evaluate(SOME_FRAMES)
        before, after = picture(page, "#before"), picture(page, "#after")
        assert page.evaluate("reads") == 1
    inside = slice(8, -8)
    assert np.ptp(before[inside].mean(axis=1)) > 0.4 > 0.2 > np.ptp(after[inside].mean(axis=1))
    assert np.ptp(after[inside, inside]) > 0.4


@in_a_browser
@needs_npm
@needs_browser
def test_onnxruntime(browser: Browser, url: str) -> None:
    """The page reads two results for each mean, and nothing in between."""
    with opened(browser, f"{url}/onnxruntime/") as page:
        means = rows(page, 5)
        assert page.evaluate("reads") == 2 * len(means)
    theirs, ours = ([row[at] for row in means] for at in (1, 2))
    assert max(float(error) for error in ours) < MOST
    assert float(theirs[0]) < MOST and float(theirs[1]) > 1e-3
    assert all("NaN" in error or float(error) > 100 for error in theirs[-2:])


@in_a_browser
@needs_npm
@needs_browser
def test_one_device_for_four_libraries(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/one-device/") as page:
        assert last_error(page) < MOST
        steps = rows(page, 4)
        assert page.evaluate("reads") == 1
    assert {where for _, where, _ in steps} == {"gpu-buffer"}
    # Six words of 768 numbers; onnxruntime rounds its buffers up.
    sizes = [int(size) for *_, size in steps]
    assert sizes[1] == sizes[3] == 6 * 768 * 4 < sizes[0]


@pytest.fixture(scope="module")
def differing(browser: Browser, url: str, apps: Path) -> dict[str, Any]:
    """Return the errors of each library, from an empty page with the example's import map."""
    page = (apps / "one-device" / "index.html").read_text(encoding="utf-8")
    (apps / "one-device" / "empty.html").write_text(page.replace('src="main.js"', ""), encoding="utf-8")
    (apps / "differ.mjs").write_bytes((Path(__file__).parent / "differ.mjs").read_bytes())
    found = {}
    for library in ("onnxruntime", "tensorflow", "transformers"):
        with opened(browser, f"{url}/one-device/empty.html") as visited:
            found[library] = visited.evaluate(
                "async (name) => (await import('/differ.mjs'))[name]()", library
            )
    return found


@in_a_browser
@needs_npm
@needs_browser
def test_the_page_quotes_the_errors_when_devices_differ(differing: dict[str, Any]) -> None:
    text = PAGE.read_text()
    theirs, tensorflow = differing["onnxruntime"], differing["tensorflow"]
    ours = theirs["encoded"]
    assert ours["first"] == ours["later"] and f'"{ours["first"]}"' in text
    foreign = theirs["foreign"].splitlines()[0]
    assert f'"{foreign}"' in text
    assert tensorflow["foreign"]["read"] == 4 * 768
    said = '[Buffer "x"] is associated with [Device]'
    assert tensorflow["foreign"]["scope"].startswith(said) and f'"{said}"' in text


@in_a_browser
@needs_npm
@needs_browser
def test_the_devices_of_the_libraries(differing: dict[str, Any]) -> None:
    """onnxruntime accepts a device by a session's option, not by its setter.

    The device of TensorFlow.js has no subgroups.
    """
    theirs, tensorflow = differing["onnxruntime"], differing["tensorflow"]
    assert theirs["ignoresTheSetter"] and theirs["onOurs"] == "gpu-buffer"
    assert theirs["notADevice"] == "Invalid GPU device set in WebGPU EP options."
    assert theirs["outBytes"] == 16384 > 4 * 768 * 4
    assert "subgroups" in theirs["ownFeatures"] and theirs["shader"] == "768-subgroups"
    assert "subgroups" not in tensorflow["ownFeatures"] and tensorflow["shader"] == "768-portable"
    assert tensorflow["onTheCpu"] == "Data is not on GPU but on CPU."
    assert tensorflow["short"] == "GPUBuffer size(8) is smaller than tensor size(12288)!"
    assert tensorflow["usage"].endswith("should include GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC!")


@in_a_browser
@needs_npm
@needs_browser
def test_a_librarys_own_device_serves_webnorm(differing: dict[str, Any]) -> None:
    assert differing["tensorflow"]["error"]["right"], differing["tensorflow"]["error"]
    assert differing["transformers"]["error"]["right"], differing["transformers"]["error"]
    assert differing["transformers"]["mean"].startswith("The data is not on CPU")
