"""Tools for tests of pages: headless Chromium, a plain server, and skip marks for missing programs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tiers
from patience import HANG_MS
from webnorm import system
from webnorm.engines.launch import CHROMIUM_ARGUMENTS, environment
from webnorm.web import tint
from webnorm.web.browser import launch as opening

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import BrowserContext, Page, Playwright

MISSING = next((mend.missing for mend in opening.browser_fixes()), None)
if MISSING is not None:
    tiers.excuse("browser", "chromium", reason=MISSING)
needs_browser = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
needs_tint = pytest.mark.skipif(tint.tint_unavailable() is not None, reason=str(tint.tint_unavailable()))
# SwiftShader shows a canvas with WebGPU content only if the page's compositor also runs on SwiftShader.
CANVAS = ("--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-angle=vulkan")


@contextmanager
def launched(playwright: Playwright, arguments: Sequence[str]) -> Iterator[Chromium]:
    """Start Chromium with only these arguments until the context ends."""
    settings: dict[str, str | float | bool] = {**environment()}
    # The tests use Chromium's own driver. A canvas would use another driver that this variable names.
    settings.pop("VK_ICD_FILENAMES", None)
    browser = playwright.chromium.launch(
        executable_path=opening.find_browser(),
        args=arguments,
        chromium_sandbox=not system.is_root(),
        env=settings,
        timeout=HANG_MS,
    )
    new_context = browser.new_context

    def patient(**settings: Any) -> BrowserContext:
        context = new_context(**settings)
        # Playwright's own limit is 30 s.
        context.set_default_timeout(HANG_MS)
        return context

    def page(**settings: Any) -> Page:
        return patient(**settings).new_page()

    browser.new_context = patient  # type: ignore[method-assign]
    browser.new_page = page  # type: ignore[method-assign]
    try:
        yield browser
        tiers.meet("browser", "chromium")
    finally:
        browser.close()


@contextmanager
def started(*arguments: str) -> Iterator[Chromium]:
    """Start Chromium with WebGPU and additional arguments until the context ends."""
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        launched(playwright, [*CHROMIUM_ARGUMENTS, *arguments]) as browser,
    ):
        yield browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with started() as browser:
        yield browser


def errors_of(page: Page) -> list[str]:
    """Return a list that collects a page's errors from now on: errors on its console, and exceptions."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


class Handler(SimpleHTTPRequestHandler):
    """A handler that serves files without log lines."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def plainly_served(folder: Path, handler: type[Handler] = Handler) -> Iterator[str]:
    """Serve a folder as `python -m http.server` does until the context ends, and yield its URL."""
    serving = functools.partial(handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
