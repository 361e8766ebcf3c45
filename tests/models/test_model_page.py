"""The page of docs/model-to-page.md, with the norms of a model, in Chromium and in Firefox."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import webnorm
from headless import needs_browser, plainly_served, started
from pages import ROOT, blocks
from patience import HANG_MS, HANG_S
from webnorm.cli.work.jobs import OK
from webnorm.engines.catalog import engine_fix, find_engine
from webnorm.web.browser.engine_visits import EngineVisitor

PAGE = ROOT / "docs" / "model-to-page.md"
FIREFOX = engine_fix("firefox")
# The page's own module is inline, as pages for beginners are.
INLINE = "script-src 'self' 'unsafe-inline'"
# The engine visitor waits for this variable.
REPORTER = """<script type="module">
  const pre = document.querySelector("pre");
  const report = () => {
    if (!pre.textContent.startsWith("computing")) window.webnormReport = pre.textContent;
  };
  new MutationObserver(report).observe(pre, { childList: true, characterData: true, subtree: true });
  report();
</script>
"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("firefox")]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page and the package of the model."""
    folder = tmp_path_factory.mktemp("page")
    model = ROOT / "tests" / "models" / "files" / "qwen3_dynamo.onnx"
    done = webnorm(["export", "--model", str(model), "--out", "dist/norms"], folder)
    assert done.returncode == OK, done.stderr
    (page,) = blocks(PAGE, "html")
    (folder / "dist" / "index.html").write_text(page + REPORTER, encoding="utf-8")
    return folder / "dist"


def shown() -> str:
    """Return the text that the guide says the page shows."""
    (text,) = blocks(PAGE, "text")
    return text.rstrip("\n")


@needs_browser
def test_chromium(dist: Path) -> None:
    with started() as chromium, plainly_served(dist) as url:
        page = chromium.new_page()
        page.goto(f"{url}/index.html")
        page.wait_for_function("window.webnormReport", timeout=HANG_MS)
        assert page.inner_text("pre") == shown()


@pytest.mark.vulkan
@pytest.mark.skipif(FIREFOX is not None, reason=FIREFOX.missing if FIREFOX else "")
def test_firefox(dist: Path) -> None:
    visitor = EngineVisitor(find_engine("firefox"), HANG_S)
    assert visitor.visit(dist, page="index.html", policy=INLINE).report == shown()
