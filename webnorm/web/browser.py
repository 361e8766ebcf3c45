"""Opens an exported page in a browser without a window, and brings back what the page reports."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from webnorm import system
from webnorm.errors import WebnormError
from webnorm.files import absolute
from webnorm.web.served import POLICY, Server, served

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import ConsoleMessage, Page, Playwright
    from playwright.async_api import Error as PlaywrightError

Found = TypeVar("Found")

# SwiftShader takes 3 s for a page, and its start 1 s; the rest is room for a busy machine and many shaders.
TIME_LIMIT_S = 120.0
PAGE = "verify.html"
# How much later a browser is killed that lets its limit pass, or does not end when it is told to.
_GRACE_S = 5.0
_GLANCE_MS = 250.0
_AT_ONCE = "it ended at once"
# Names on the PATH, then where macOS and Windows install; all of them speak Chrome's debugging protocol.
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "msedge")
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
# WebGPU is off on Linux unless asked for; the others keep the browser from calling home.
_ARGUMENTS = (
    "--enable-unsafe-webgpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True)
class Visit:
    """What one visit brought: the report as the page made it, and a picture (PNG) if one was asked for."""

    browser: str
    report: Any
    remarks: tuple[str, ...]
    """What the page wrote to the console as errors."""
    screenshot: bytes | None = None


def find(named: Path | None = None) -> Path | None:
    """The browser named here or in $WEBNORM_BROWSER, else the first installed; None if there is none."""
    wanted = named or os.environ.get("WEBNORM_BROWSER")
    if wanted:
        try:
            path = shutil.which(wanted) or shutil.which(absolute(Path(wanted)))
        except (OSError, ValueError):
            path = None
        if path is None:
            raise WebnormError(f"{wanted}: no such browser; expected the path of Chromium, Chrome or Edge")
        return Path(path)
    return next((Path(path) for name in (*_NAMES, *_PLACES) if (path := shutil.which(name))), None)


def mends(named: Path | None = None) -> list[system.Mend]:
    """What is missing for opening pages, in the browser that is named or else in the first installed."""
    missing = []
    if find_spec("playwright") is None:
        command = system.pip_install("playwright")
        missing.append(system.Mend("No Playwright: this Python has no package playwright.", (command,)))
    browser = system.browser_mend(find(named) is not None)
    return missing if browser is None else [*missing, browser]


class Browser:
    """A browser that is started when needed, and again after it was given up.

    Playwright starts it and ends it in every event, this process's death included; what hangs is killed here.
    Playwright has a thread of its own, and there an event loop, which does not disturb another, such as a
    notebook's; and a call of it that never answers can be left.
    """

    def __init__(self, path: Path | None = None, time_limit_s: float = TIME_LIMIT_S) -> None:
        found = find(path)
        if found is None:
            raise WebnormError(
                "no browser: install Chromium, Chrome or Edge (Debian's package is chromium; "
                "`webnorm doctor --mend --browser` installs it), or name one with --browser"
            )
        if find_spec("playwright") is None:
            raise WebnormError(f"Playwright is not installed: {shlex.join(system.pip_install('playwright'))}")
        self.path, self.time_limit_s = found, time_limit_s
        self._thread, self._loop = ThreadPoolExecutor(1), asyncio.Runner()
        self._playwright: Playwright | None = None
        self._browser: PlaywrightBrowser | None = None
        self._pid = 0

    def __enter__(self) -> Browser:
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
    ) -> Visit:
        """Open a folder's page under a content security policy, and wait for the report that it leaves in
        `window.webnormReport`.

        Raises WebnormError when there is none: the browser does not start, the page fails or takes too long.
        """
        visiting = self._thread.submit(self._loop.run, self._visit(folder, page, query, screenshot, policy))
        try:
            return visiting.result()
        except KeyboardInterrupt:
            self._kill()
            raise

    async def _visit(self, folder: Path, page: str, query: str, screenshot: bool, policy: str) -> Visit:
        from playwright.async_api import Error

        browser = self._browser or await self._start()
        deadline = time.monotonic() + self.time_limit_s
        try:
            # The rest of the time limit is kept by Playwright. A browser that hangs does not answer to that.
            with served(folder, policy) as server, self._killed_after(self.time_limit_s + _GRACE_S):
                said = _Listener(page, server)
                looking = self._look(browser, f"{server.url}/{page}{query}", said, deadline, screenshot)
                return await _while_connected(browser, looking)
        except Exception as error:
            gone = not browser.is_connected()
            self._kill()
            await self._end()
            if not isinstance(error, (Error, _Gone)):
                raise
            if time.monotonic() >= deadline:
                raise WebnormError(self._late(page)) from error
            how = f"ended while it ran {page}" if gone else f"failed: {_first_line(error)}"
            raise WebnormError(f"{self.path} {how}") from error

    async def _look(
        self, browser: PlaywrightBrowser, url: str, said: _Listener, deadline: float, screenshot: bool
    ) -> Visit:
        context = await browser.new_context()
        page = await context.new_page()
        said.listen(page)
        await page.goto(url, wait_until="commit", timeout=_left_ms(deadline))
        report = await self._report(page, said, deadline)
        picture = await page.screenshot(full_page=True, timeout=_left_ms(deadline)) if screenshot else None
        await context.close()
        return Visit(f"{self.path.name} {browser.version}", report, tuple(said.remarks), picture)

    async def _report(self, page: Page, said: _Listener, deadline: float) -> Any:
        from playwright.async_api import TimeoutError

        while time.monotonic() < deadline:
            # Short glances, since what the page throws is heard only in between.
            with suppress(TimeoutError):
                await page.wait_for_function("() => window.webnormReport != null", timeout=_GLANCE_MS)
                return await page.evaluate("() => window.webnormReport")
            if said.failure:
                raise WebnormError(f"{said.name} {said.failure}")
        raise WebnormError("; ".join((self._late(said.name), *said.remarks)))

    def _late(self, page: str) -> str:
        return f"{page} did not report within {self.time_limit_s:g} s: stopped"

    async def _start(self) -> PlaywrightBrowser:
        from playwright.async_api import Error, async_playwright
        from playwright.async_api import TimeoutError as Late

        self._playwright = self._playwright or await async_playwright().start()
        try:
            browser = await self._playwright.chromium.launch(
                executable_path=self.path,
                args=_ARGUMENTS,
                # Chromium's sandbox refuses to run as root.
                chromium_sandbox=not system.is_root(),
                env=_environment(),
                timeout=self.time_limit_s * 1000,
            )
            asking = _while_connected(browser, _processes(browser))
            processes = await asyncio.wait_for(asking, self.time_limit_s)
        except _Gone:
            raise WebnormError(f"{self.path} does not start as a browser: {_AT_ONCE}") from None
        except (Late, TimeoutError):
            raise WebnormError(f"{self.path} did not start within {self.time_limit_s:g} s: stopped") from None
        except Error as error:
            raise WebnormError(f"{self.path} does not start as a browser: {_last_words(error)}") from error
        self._pid = next(one["id"] for one in processes if one["type"] == "browser")
        self._browser = browser
        return browser

    async def _stop(self) -> None:
        await self._end()
        if self._playwright is not None:
            await self._playwright.stop()
            self._playwright = None

    async def _end(self) -> None:
        from playwright.async_api import Error

        if self._browser is not None:
            with self._killed_after(_GRACE_S), suppress(Error, _Gone):
                await _while_connected(self._browser, self._browser.close())
        self._browser, self._pid = None, 0

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        """From another thread: a page may have so much to say that the event loop has no time for a clock."""
        timer = threading.Timer(seconds, self._kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _kill(self) -> None:
        """End the browser and its children without asking. Playwright makes it the leader of a group."""
        if not self._pid:
            return
        with suppress(ProcessLookupError):
            if sys.platform == "win32":
                os.kill(self._pid, signal.SIGTERM)
            else:
                os.killpg(os.getpgid(self._pid), signal.SIGKILL)


class _Gone(Exception):
    """The browser has ended."""


async def _while_connected(browser: PlaywrightBrowser, work: Coroutine[Any, Any, Found]) -> Found:
    """What a piece of work on a browser gives; raises _Gone where the browser ends.

    Where that happens while it opens a page, Playwright waits for the page for ever.
    """
    ended = asyncio.Event()

    def end(_: PlaywrightBrowser) -> None:
        ended.set()

    browser.on("disconnected", end)
    tasks = working, _ = asyncio.ensure_future(work), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise _Gone
    finally:
        browser.remove_listener("disconnected", end)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _processes(browser: PlaywrightBrowser) -> list[Any]:
    """The browser's processes, as it knows them itself."""
    session = await browser.new_browser_cdp_session()
    found: list[Any] = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    return found


class _Listener:
    """What a page, known by its file's `name`, says besides its report."""

    def __init__(self, name: str, server: Server) -> None:
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


def _environment() -> dict[str, str | float | bool]:
    """This process's environment, in which Chromium finds its own software driver.

    It names that by the older of Vulkan's two variables, which the newer one would overrule.
    """
    environment: dict[str, str | float | bool] = {**os.environ}
    drivers = environment.pop("VK_DRIVER_FILES", None)
    return environment if drivers is None else {**environment, "VK_ICD_FILENAMES": drivers}


def _left_ms(deadline: float) -> float:
    """Playwright takes 0 for no limit at all."""
    return max(1.0, (deadline - time.monotonic()) * 1000)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _thrown(error: PlaywrightError) -> str:
    """An exception of a page: its kind, its message, and where it was thrown if that is known."""
    place = re.search(r"127\.0\.0\.1:\d+/([^\s)]+:\d+:\d+)", error.stack or "")
    where = f" ({place[1]})" if place else ""
    return f"{error.name}: {_first_line(error)}{where}"


def _last_words(error: PlaywrightError) -> str:
    """Why a browser did not start: its own complaint if Playwright recorded one."""
    said: list[str] = re.findall(r"\[pid=\d+\]\[err\] (.+)", str(error))
    if not said:
        return _AT_ONCE if "has been closed" in str(error) else _first_line(error)
    return next((line for line in said if ":FATAL:" in line), said[-1])
