"""Where a browser is had from: installed here, or behind a Playwright server, perhaps another machine's."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from webnorm import system
from webnorm.errors import WebnormError, shell_command
from webnorm.files.atomic import absolute

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import Error, Playwright

Found = TypeVar("Found")

_AT_ONCE = "it ended at once"
_MOMENT_S = 0.1
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
ARGUMENTS = (
    "--enable-unsafe-webgpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True)
class ConnectedBrowser:
    """A browser that Playwright is connected to."""

    browser: PlaywrightBrowser
    name: str
    """What reports call it, with its version."""
    end: Callable[[], object]
    """Have it disconnected without asking, from any thread."""


def find_browser(named: str | Path | None = None) -> Path | None:
    """The browser of this machine that is named here or in $WEBNORM_BROWSER, else the first installed."""
    wanted = named or os.environ.get("WEBNORM_BROWSER")
    if wanted:
        with suppress(OSError, ValueError):
            if path := shutil.which(wanted) or shutil.which(absolute(Path(wanted))):
                return absolute(Path(path))
        raise WebnormError(
            f"{wanted}: no such browser; expected the path of Chromium, Chrome or Edge, or ws://HOST:PORT/..."
        )
    return next((Path(path) for name in (*_NAMES, *_PLACES) if (path := shutil.which(name))), None)


def browser_source(named: str | Path | None = None) -> InstalledBrowser | RemoteBrowser | None:
    """The same, or the Playwright server whose address is given instead; None where there is none.

    Raises WebnormError for what is neither a browser nor an address.
    """
    wanted = str(named or os.environ.get("WEBNORM_BROWSER") or "")
    if "://" in wanted:
        return RemoteBrowser(wanted)
    path = find_browser(named)
    return None if path is None else InstalledBrowser(path)


def playwright() -> Any:
    """Playwright's module; Unavailable where this Python cannot drive a browser."""
    return system.library(
        "playwright.async_api", "a browser", "playwright", "async_playwright", "Error", "TimeoutError"
    )


def browser_fixes(named: str | Path | None = None) -> list[system.Fix]:
    """What is missing for opening pages, in the browser that is named or else in the first installed."""
    missing = []
    try:
        playwright()
    except system.Unavailable as error:
        # To install what is there already would change nothing.
        commands = () if system.is_installed("playwright") else (system.pip_install("playwright"),)
        missing.append(system.Fix(f"No Playwright: {error}.", commands))
    browser = system.browser_fix(browser_source(named) is not None)
    return missing if browser is None else [*missing, browser]


class BrowserGone(Exception):
    """The browser has ended, or the connection to it."""


async def while_connected(browser: PlaywrightBrowser, work: Coroutine[Any, Any, Found]) -> Found:
    """What a piece of work on a browser gives; raises BrowserGone where the browser ends.

    Where that happens while it opens a page, Playwright waits for the page for ever.
    """
    ended = asyncio.Event()

    def end(_: PlaywrightBrowser) -> None:
        ended.set()

    browser.on("disconnected", end)
    tasks = working, ending = asyncio.ensure_future(work), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise BrowserGone
        if working.exception() is not None:
            # Where a connection ends, the calls that it breaks off come first.
            await asyncio.wait((ending,), timeout=_MOMENT_S)
        return working.result()
    finally:
        browser.remove_listener("disconnected", end)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def first_line(error: Exception) -> str:
    """What an exception says first."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class InstalledBrowser:
    """A browser of this machine.

    Playwright starts it and ends it in every event, this process's death included; what hangs is killed here.
    """

    # What has happened where a browser is gone, as a verb.
    loss = "ended"

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name

    def __str__(self) -> str:
        return str(self.path)

    async def open(self, playwright: Playwright, time_limit_s: float) -> ConnectedBrowser:
        """Start it; raises WebnormError with its own complaint where it made one."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        try:
            browser = await playwright.chromium.launch(
                executable_path=self.path,
                args=ARGUMENTS,
                # Chromium's sandbox refuses to run as root.
                chromium_sandbox=not system.is_root(),
                env=environment(),
                timeout=time_limit_s * 1000,
            )
            asking = while_connected(browser, _processes(browser))
            processes = await asyncio.wait_for(asking, time_limit_s)
        except BrowserGone:
            raise WebnormError(f"{self} does not start as a browser: {_AT_ONCE}") from None
        except (Late, TimeoutError):
            raise WebnormError(f"{self} did not start within {time_limit_s:g} s: stopped") from None
        except Error as error:
            raise WebnormError(f"{self} does not start as a browser: {_last_words(error)}") from error
        process = next(one["id"] for one in processes if one["type"] == "browser")
        return ConnectedBrowser(browser, f"{self.name} {browser.version}", partial(_kill, process))

    def failure(self, error: Exception) -> str:
        """As Playwright says it."""
        return first_line(error)


class RemoteBrowser:
    """A browser behind a Playwright server, which is disconnected and never ended.

    A server that starts a browser for each client (`playwright run-server`) has it reach this machine's own
    ports through the connection. It is asked for one with the GPU, which Playwright's headless shell does
    without; `launch-server`, whose browser runs already, does neither.
    """

    loss = "was disconnected"

    def __init__(self, address: str) -> None:
        try:
            parts = urlsplit(address)
            right = parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0
        except ValueError:
            right = False
        if not right:
            raise WebnormError(f"{address}: no such browser; expected ws://HOST:PORT/... or wss://HOST/...")
        self.address = address
        # Words in front of the host and behind it may be secrets.
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def __str__(self) -> str:
        return self.name

    async def open(self, playwright: Playwright, time_limit_s: float) -> ConnectedBrowser:
        """Connect to it; raises WebnormError with what the server or the network says."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        limit_ms = time_limit_s * 1000
        options = {"channel": "chromium", "args": ARGUMENTS, "timeout": limit_ms}
        try:
            browser = await playwright.chromium.connect(
                self.address,
                expose_network="<loopback>",
                headers={"x-playwright-launch-options": json.dumps(options)},
                timeout=limit_ms,
            )
        except Late:
            raise WebnormError(f"{self} did not answer within {time_limit_s:g} s: stopped") from None
        except Error as error:
            raise WebnormError(f"{self}: {_refusal(error)}") from error
        loop = asyncio.get_running_loop()
        return ConnectedBrowser(
            browser,
            f"chromium {browser.version} at {self}",
            # It asks nothing of the other side.
            lambda: asyncio.run_coroutine_threadsafe(browser.close(), loop),
        )

    def failure(self, error: Exception) -> str:
        """As Playwright says it, and why this machine's port may not be reached."""
        said = first_line(error)
        if "net::" not in said:
            return said
        return f"{said}; expected a server that lets browsers reach this machine: playwright run-server"


def _kill(process: int) -> None:
    """End a browser and its children. Playwright makes it the leader of a group."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            os.kill(process, signal.SIGTERM)
        else:
            os.killpg(os.getpgid(process), signal.SIGKILL)


async def _processes(browser: PlaywrightBrowser) -> list[Any]:
    """The browser's processes, as it knows them itself."""
    session = await browser.new_browser_cdp_session()
    found: list[Any] = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    return found


def environment() -> dict[str, str | float | bool]:
    """Return this process's environment, in which Chromium finds its own software driver.

    It names that by the older of Vulkan's two variables, which the newer one would overrule.
    """
    own: dict[str, str | float | bool] = {**os.environ}
    drivers = own.pop("VK_DRIVER_FILES", None)
    return own if drivers is None else {**own, "VK_ICD_FILENAMES": drivers}


def _last_words(error: Error) -> str:
    """Why a browser did not start: its own complaint if Playwright recorded one."""
    said: list[str] = re.findall(r"\[pid=\d+\]\[err\] (.+)", str(error))
    if not said:
        return _AT_ONCE if "has been closed" in str(error) else first_line(error)
    return next((line for line in said if ":FATAL:" in line), said[-1])


def _refusal(error: Error) -> str:
    """Why there is no connection, in one line of the many that Playwright has, and what helps."""
    text = str(error)
    versions = dict(re.findall(r"(server|client) version: v([\d.]+)", text))
    if len(versions) == 2:
        install = shell_command(system.pip_install(f"playwright=={versions['server']}.*"))
        return (
            f"Playwright {versions['server']} there, {versions['client']} here; expected the same: {install}"
        )
    said = re.sub(r"^BrowserType\.connect: (WebSocket error: )?(wss?://\S+ )?", "", first_line(error))
    if "playwright install" in text:
        return f"{said}; expected Playwright's Chromium there: python -m playwright install chromium"
    return f"no connection: {said}; expected the address of a running Playwright server, its path included"
