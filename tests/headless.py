"""Tools for tests of pages: headless Chromium, a plain server, and marks for missing programs."""

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
from webnorm.web import tint
from webnorm.web.browser import launch as opening

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import BrowserContext, Page, Playwright

MISSING = next((mend.missing for mend in opening.browser_fixes()), None)
if MISSING is not None:
    tiers.excuse("browser", reason=MISSING)
needs_browser = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
needs_tint = pytest.mark.skipif(tint.tint_unavailable() is not None, reason=str(tint.tint_unavailable()))
# A canvas that WebGPU draws to is shown by SwiftShader if the page's compositor runs on it, too.
CANVAS = ("--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-angle=vulkan")


@contextmanager
def launched(playwright: Playwright, arguments: Sequence[str]) -> Iterator[Chromium]:
    """Chromium with these arguments alone, as long as the context lasts."""
    environment = opening.environment()
    # Chromium's own driver is tested on; where another is named, what draws a canvas would take that.
    environment.pop("VK_ICD_FILENAMES", None)
    browser = playwright.chromium.launch(
        executable_path=opening.find_browser(),
        args=arguments,
        chromium_sandbox=not system.is_root(),
        env=environment,
        timeout=HANG_MS,
    )
    new_context = browser.new_context

    def patient(**settings: Any) -> BrowserContext:
        context = new_context(**settings)
        # Playwright would give up after 30 s.
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
    """Chromium with WebGPU and these arguments, too, as long as the context lasts."""
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        launched(playwright, [*opening.ARGUMENTS, *arguments]) as browser,
    ):
        yield browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with started() as browser:
        yield browser


def errors_of(page: Page) -> list[str]:
    """The errors on a page's console, and what it throws, from now on."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


class Handler(SimpleHTTPRequestHandler):
    """Serves files, and writes no line of it."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def plainly_served(folder: Path, handler: type[Handler] = Handler) -> Iterator[str]:
    """The URL of a folder as `python -m http.server` serves it, as long as the context lasts."""
    serving = functools.partial(handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
