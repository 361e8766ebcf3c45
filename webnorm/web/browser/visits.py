"""Opens an exported page in a headless browser, and returns the page's report."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from webnorm.errors import WebnormError
from webnorm.serving import POLICY, StaticSite, serve_folder
from webnorm.web.browser.launch import (
    ConnectedBrowser,
    browser_source,
    first_line,
    playwright,
    while_connected,
)
from webnorm.web.folder import PAGE

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Page, Playwright
    from playwright.async_api import Error as PlaywrightError

# SwiftShader takes 3 s for a page and 1 s to start; the rest is reserve for a busy machine and many shaders.
TIME_LIMIT_S = 120.0
# Seconds after the limit, or after a request to close, until a browser is ended.
_GRACE_S = 5.0
# Seconds between checks for a failed page or an expired limit.
_GLANCE_S = 0.25


@dataclass(frozen=True)
class PageVisit:
    """The result of one visit: the page's report, and a picture (PNG) if requested."""

    browser: str
    report: Any
    remarks: tuple[str, ...]
    """The errors that the page wrote to the console."""
    screenshot: bytes | None = None


class Visitor(Protocol):
    """Anything that opens a page of a folder and returns the page's report."""

    def visit(
        self,
        folder: Path,
        query: str = "",
        *,
        page: str = PAGE,
        screenshot: bool = False,
        policy: str = POLICY,
    ) -> PageVisit:
        """Return the report. Raises WebnormError if there is none within a time limit."""


class PageVisitor:
    """A browser that opens on demand, and again after it was ended.

    `named` is a path or the address of a Playwright server; the default is the first installed browser.
    Playwright runs in a separate thread with its own event loop. So it does not disturb another event loop,
    such as a notebook's, and a call that never returns can be abandoned.
    """

    def __init__(self, named: str | Path | None = None, time_limit_s: float | None = None) -> None:
        found = browser_source(named)
        if found is None:
            raise WebnormError(
                "no browser: install Chromium, Chrome or Edge (Debian's package is chromium; "
                "`webnorm doctor --fix --browser` installs it), or name one with --browser"
            )
        playwright()
        self.opener = found
        self.time_limit_s = TIME_LIMIT_S if time_limit_s is None else time_limit_s
        self._thread, self._loop = ThreadPoolExecutor(1), asyncio.Runner(loop_factory=_quiet_loop)
        self._playwright: Playwright | None = None
        self._opened: ConnectedBrowser | None = None
        self._visiting: asyncio.Task[PageVisit] | None = None

    def __enter__(self) -> PageVisitor:
        return self

    def __exit__(self, *_: object) -> None:
        with self._thread:
            self._thread.submit(self._loop.run, self._stop()).result()
            self._thread.submit(self._loop.close).result()

    def visit(
        self,
        folder: Path,
        query: str = "",
        *,
        page: str = PAGE,
        screenshot: bool = False,
        policy: str = POLICY,
    ) -> PageVisit:
        """Open a folder's page under a content security policy, and wait for `window.webnormReport`.

        Raises WebnormError if the browser does not open, or the page fails or takes too long.
        """
        visiting = self._thread.submit(self._loop.run, self._visit(folder, page, query, screenshot, policy))
        try:
            return visiting.result()
        except KeyboardInterrupt:
            self._leave()
            raise

    async def _visit(self, folder: Path, page: str, query: str, screenshot: bool, policy: str) -> PageVisit:
        self._visiting = asyncio.current_task()
        opened = self._opened or await self._open()
        deadline = monotonic() + self.time_limit_s
        hung = threading.Event()
        with serve_folder(folder, policy) as server:
            said = _Listener(page, server)
            try:
                # Playwright enforces the time limit, except for a browser that hangs.
                with self._given_up_after(self.time_limit_s + _GRACE_S, hung):
                    looking = self._look(opened, f"{server.url}/{page}{query}", said, deadline, screenshot)
                    return await while_connected(opened.browser, looking)
            except Exception as error:
                gone = not opened.browser.is_connected()
                self._give_up()
                await self._end()
                if isinstance(error, WebnormError):
                    raise
                if hung.is_set() or monotonic() >= deadline:
                    raise WebnormError(self._late(said)) from error
                how = (
                    f"{self.opener.loss} while it ran {page}"
                    if gone
                    else f"failed: {self.opener.failure(error)}"
                )
                raise WebnormError(f"{self.opener} {how}") from error

    async def _look(
        self, opened: ConnectedBrowser, url: str, said: _Listener, deadline: float, screenshot: bool
    ) -> PageVisit:
        context = await opened.browser.new_context()
        page = await context.new_page()
        said.listen(page)
        await page.goto(url, wait_until="commit", timeout=_left_ms(deadline))
        report = await self._report(page, said, deadline)
        picture = await page.screenshot(full_page=True, timeout=_left_ms(deadline)) if screenshot else None
        await context.close()
        return PageVisit(opened.name, report, tuple(said.remarks), picture)

    async def _report(self, page: Page, said: _Listener, deadline: float) -> Any:
        # Playwright's own time limits are not used here, since some calls exceed them in a page that hangs.
        waiting = asyncio.ensure_future(_reported(page))
        try:
            while monotonic() < deadline:
                done, _ = await asyncio.wait({waiting}, timeout=_GLANCE_S)
                if done:
                    return waiting.result()
                if said.failure:
                    raise WebnormError(f"{said.name} {said.failure}")
        finally:
            waiting.cancel()
        raise WebnormError(self._late(said))

    def _late(self, said: _Listener) -> str:
        late = f"{said.name} did not report within {self.time_limit_s:g} s: stopped"
        return "; ".join((late, *said.remarks))

    async def _open(self) -> ConnectedBrowser:
        try:
            self._playwright = self._playwright or await playwright().async_playwright().start()
        except Exception as error:  # Playwright raises its own types and plain exceptions
            # Playwright's tasks end with its driver process, which may take a moment.
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others, timeout=_GRACE_S)
            raise WebnormError(f"Playwright does not start: {first_line(error)}") from error
        self._opened = await self.opener.open(self._playwright, self.time_limit_s)
        return self._opened

    async def _stop(self) -> None:
        await self._end()
        if self._playwright is not None:
            # This fails if the driver process has died.
            with suppress(Exception):
                await self._playwright.stop()
            self._playwright = None

    async def _end(self) -> None:
        if self._opened is not None:
            browser = self._opened.browser
            with self._given_up_after(_GRACE_S), suppress(Exception):
                await while_connected(browser, browser.close())
        self._opened = None

    @contextmanager
    def _given_up_after(self, seconds: float, hung: threading.Event | None = None) -> Iterator[None]:
        """End the browser after a time, from another thread, and set `hung` before.

        The event loop cannot do this: a page may keep it busy with messages.
        """

        def give_up() -> None:
            if hung is not None:
                hung.set()
            self._give_up()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        if self._opened is not None:
            self._opened.end()

    def _leave(self) -> None:
        """End a visit from another thread, also while the browser is starting, which may take forever."""
        if self._opened is not None:
            self._give_up()
        elif self._visiting is not None:
            self._visiting.get_loop().call_soon_threadsafe(self._visiting.cancel)


def _quiet_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that logs nothing.

    When Playwright fails, its own tasks fail as well, and no code awaits them. The caller gets the error.
    """
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    return loop


class _Listener:
    """The console errors and failures of the page with the file `name`."""

    def __init__(self, name: str, server: StaticSite) -> None:
        self.name = name
        self.remarks: list[str] = []
        self._page_failure: str | None = None
        self._server = server

    def listen(self, page: Page) -> None:
        """Start to record the events of the page."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._fail(f"failed: {_thrown(error)}"))
        page.on("crash", lambda _: self._fail("crashed"))

    @property
    def failure(self) -> str | None:
        """The reason why the page cannot report, if known."""
        missing = self._server.missing
        return f"requests {missing[0]}, which is missing; export again" if missing else self._page_failure

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.remarks.append(message.text.strip().splitlines()[0])

    def _fail(self, how: str) -> None:
        self._page_failure = self._page_failure or how


async def _reported(page: Page) -> Any:
    """Wait for a page's report and return it."""
    await page.wait_for_function("() => window.webnormReport != null", timeout=0)
    return await page.evaluate("() => window.webnormReport")


def _left_ms(deadline: float) -> float:
    """Return the milliseconds until the deadline, at least 1, since 0 means no limit to Playwright."""
    return max(1.0, (deadline - monotonic()) * 1000)


def _thrown(error: PlaywrightError) -> str:
    """Return an exception of a page as text: its type, its message, and its place if known."""
    place = re.search(r"127\.0\.0\.1:\d+/([^\s)]+:\d+:\d+)", error.stack or "")
    where = f" ({place[1]})" if place else ""
    return f"{error.name}: {first_line(error)}{where}"
