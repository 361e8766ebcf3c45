"""Opens an exported page in a browser without a window, and brings back what the page reports."""

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
from typing import TYPE_CHECKING, Any

from webnorm.errors import WebnormError
from webnorm.web.browser.launch import (
    ConnectedBrowser,
    browser_source,
    first_line,
    playwright,
    while_connected,
)
from webnorm.web.folder import PAGE
from webnorm.web.serving import POLICY, StaticSite, serve_folder

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Page, Playwright
    from playwright.async_api import Error as PlaywrightError

# SwiftShader takes 3 s for a page, and its start 1 s; the rest is room for a busy machine and many shaders.
TIME_LIMIT_S = 120.0
# How much later a browser is given up that lets its limit pass, or does not end when it is told to.
_GRACE_S = 5.0
# How often it is looked at whether a page failed, or its time is over.
_GLANCE_S = 0.25


@dataclass(frozen=True)
class PageVisit:
    """What one visit brought: the report as the page made it, and a picture (PNG) if one was asked for."""

    browser: str
    report: Any
    remarks: tuple[str, ...]
    """What the page wrote to the console as errors."""
    screenshot: bytes | None = None


class PageVisitor:
    """A browser that is opened when needed, and again after it was given up.

    It is named by a path or by a Playwright server's address, else it is the first installed.
    Playwright has a thread of its own, and there an event loop, which does not disturb another, such as a
    notebook's; and a call of it that never answers can be left.
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
        """Open a folder's page under a content security policy, and wait for the report that it leaves in
        `window.webnormReport`.

        Raises WebnormError when there is none: the browser does not open, the page fails or takes too long.
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
                # Playwright keeps the rest of the time limit. A browser that hangs does not answer to that.
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
        # Playwright's own time limits do not count here: in a page that is stuck some calls outlast them.
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
        except Exception as error:  # its program raises some kinds of its own, and plain ones
            # Tasks of Playwright's own end with its program, which may take a moment.
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others, timeout=_GRACE_S)
            raise WebnormError(f"Playwright does not start: {first_line(error)}") from error
        self._opened = await self.opener.open(self._playwright, self.time_limit_s)
        return self._opened

    async def _stop(self) -> None:
        await self._end()
        if self._playwright is not None:
            # It fails where its program has died.
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
        """From another thread: a page may have so much to say that the event loop has no time for a clock.
        `hung` is set before.
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
        """Have a visit end, from another thread: also while the browser starts, which may take for ever."""
        if self._opened is not None:
            self._give_up()
        elif self._visiting is not None:
            self._visiting.get_loop().call_soon_threadsafe(self._visiting.cancel)


def _quiet_loop() -> asyncio.AbstractEventLoop:
    """An event loop that logs nothing: where Playwright fails, tasks of its own fail, which no code awaits.

    Whoever calls Playwright hears of it.
    """
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    return loop


class _Listener:
    """What a page, known by its file's `name`, says besides its report."""

    def __init__(self, name: str, server: StaticSite) -> None:
        self.name = name
        self.remarks: list[str] = []
        self._page_failure: str | None = None
        self._server = server

    def listen(self, page: Page) -> None:
        """Hear what the page says from now on."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._fail(f"failed: {_thrown(error)}"))
        page.on("crash", lambda _: self._fail("crashed"))

    @property
    def failure(self) -> str | None:
        """Why no report is to be expected, if something says so."""
        missing = self._server.missing
        return f"asks for {missing[0]}, which is missing; export again" if missing else self._page_failure

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.remarks.append(message.text.strip().splitlines()[0])

    def _fail(self, how: str) -> None:
        self._page_failure = self._page_failure or how


async def _reported(page: Page) -> Any:
    """A page's report, as soon as there is one."""
    await page.wait_for_function("() => window.webnormReport != null", timeout=0)
    return await page.evaluate("() => window.webnormReport")


def _left_ms(deadline: float) -> float:
    """Playwright takes 0 for no limit at all."""
    return max(1.0, (deadline - monotonic()) * 1000)


def _thrown(error: PlaywrightError) -> str:
    """An exception of a page: its kind, its message, and where it was thrown if that is known."""
    place = re.search(r"127\.0\.0\.1:\d+/([^\s)]+:\d+:\d+)", error.stack or "")
    where = f" ({place[1]})" if place else ""
    return f"{error.name}: {first_line(error)}{where}"
