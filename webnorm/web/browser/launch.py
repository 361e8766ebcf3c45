"""Finding and starting a browser: an installed one, or one behind a Playwright server."""

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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from webnorm import system
from webnorm.engines.catalog import DRIVEN, UNDRIVEN, engine_fix, find_program, undriven_engine
from webnorm.engines.launch import CHROMIUM_ARGUMENTS, environment
from webnorm.errors import WebnormError, shell_command
from webnorm.files.atomic import absolute

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import Error, Playwright

Found = TypeVar("Found")

_AT_ONCE = "it ended at once"
_MOMENT_S = 0.1


@dataclass(frozen=True)
class ConnectedBrowser:
    """A browser that Playwright is connected to."""

    browser: PlaywrightBrowser
    name: str
    """The name in reports, with the version."""
    end: Callable[[], object]
    """Disconnect the browser by force; any thread may call this."""


def find_browser(named: str | Path | None = None) -> Path | None:
    """Return the installed browser named here or in $WEBNORM_BROWSER, else the first installed."""
    wanted = named or os.environ.get("WEBNORM_BROWSER")
    if wanted:
        with suppress(OSError, ValueError):
            if path := shutil.which(wanted) or shutil.which(absolute(Path(wanted))):
                found = absolute(Path(path))
                if name := undriven_engine(found):
                    raise WebnormError(
                        f"{wanted}: expected Chromium, Chrome or Edge; for this browser use --engine {name}"
                    )
                return found
        raise WebnormError(
            f"{wanted}: no such browser; expected the path of Chromium, Chrome or Edge, or ws://HOST:PORT/..."
        )
    return next(filter(None, map(find_program, DRIVEN)), None)


def browser_source(named: str | Path | None = None) -> InstalledBrowser | RemoteBrowser | None:
    """Return the browser named here or in $WEBNORM_BROWSER, by path or by the address of a Playwright server.

    Without a name return the first installed browser, or None. Raises WebnormError for a wrong path or
    address.
    """
    wanted = str(named or os.environ.get("WEBNORM_BROWSER") or "")
    if "://" in wanted:
        return RemoteBrowser(wanted)
    path = find_browser(named)
    return None if path is None else InstalledBrowser(path)


def playwright() -> Any:
    """Return Playwright's module. Raises Unavailable if this Python cannot drive a browser."""
    return system.library(
        "playwright.async_api", "a browser", "playwright", "async_playwright", "Error", "TimeoutError"
    )


def browser_fixes(named: str | Path | None = None) -> list[system.Fix]:
    """Return fixes for the missing parts for opening pages, in the named browser or the first installed."""
    missing = []
    try:
        playwright()
    except system.Unavailable as error:
        # If it is installed but broken, installing it again would change nothing.
        commands = () if system.is_installed("playwright") else (system.pip_install("playwright"),)
        missing.append(system.Fix(f"No Playwright: {error}.", commands))
    browser = system.browser_fix(browser_source(named) is not None)
    if browser is None:
        return missing
    hints = (f" `webnorm verify --engine {name}` works." for name in UNDRIVEN if engine_fix(name) is None)
    return [*missing, replace(browser, missing=browser.missing + next(hints, ""))]


class BrowserGone(Exception):
    """The browser or the connection to it has ended."""


async def while_connected(browser: PlaywrightBrowser, work: Coroutine[Any, Any, Found]) -> Found:
    """Wait for work on a browser. Raises BrowserGone if the browser ends.

    Playwright itself waits forever if the browser ends while it opens a page.
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
            # When a connection ends, its broken calls fail before the event arrives.
            await asyncio.wait((ending,), timeout=_MOMENT_S)
        return working.result()
    finally:
        browser.remove_listener("disconnected", end)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class InstalledBrowser:
    """A browser of this machine.

    Playwright starts it, and ends it even if this process dies. This class kills a browser that hangs.
    """

    # A verb for messages about a browser that is gone.
    loss = "ended"

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name

    def __str__(self) -> str:
        return str(self.path)

    async def open(self, playwright: Playwright, time_limit_s: float) -> ConnectedBrowser:
        """Start the browser. Raises WebnormError with the browser's own message, if any."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        try:
            browser = await playwright.chromium.launch(
                executable_path=self.path,
                args=CHROMIUM_ARGUMENTS,
                # Chromium's sandbox refuses to run as root.
                chromium_sandbox=not system.is_root(),
                env={**environment()},
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
        """Return Playwright's message for an error."""
        return first_line(error)


class RemoteBrowser:
    """A browser behind a Playwright server. It is disconnected, but never ended.

    `playwright run-server` starts a browser for each client and lets it reach ports of the client's machine.
    The client requests Chromium with a GPU, which Playwright's headless shell lacks. With `launch-server` the
    browser runs already, so it offers neither.
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
        # The parts of the address before and after the host may be secrets.
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def __str__(self) -> str:
        return self.name

    async def open(self, playwright: Playwright, time_limit_s: float) -> ConnectedBrowser:
        """Connect to the browser. Raises WebnormError with the message of the server or the network."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        limit_ms = time_limit_s * 1000
        options = {"channel": "chromium", "args": CHROMIUM_ARGUMENTS, "timeout": limit_ms}
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
            # Closing needs no answer of the server.
            lambda: asyncio.run_coroutine_threadsafe(browser.close(), loop),
        )

    def failure(self, error: Exception) -> str:
        """Return Playwright's message, with advice if the browser cannot reach this machine."""
        said = first_line(error)
        if "net::" not in said:
            return said
        return f"{said}; expected a server that lets browsers reach this machine: playwright run-server"


def _kill(process: int) -> None:
    """Kill a browser and its children. Playwright makes it the leader of a process group."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            os.kill(process, signal.SIGTERM)
        else:
            os.killpg(os.getpgid(process), signal.SIGKILL)


async def _processes(browser: PlaywrightBrowser) -> list[Any]:
    """Return the browser's own list of its processes."""
    session = await browser.new_browser_cdp_session()
    found: list[Any] = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    return found


def _last_words(error: Error) -> str:
    """Return why a browser did not start: its own message if Playwright recorded one."""
    said: list[str] = re.findall(r"\[pid=\d+\]\[err\] (.+)", str(error))
    if not said:
        return _AT_ONCE if "has been closed" in str(error) else first_line(error)
    return next((line for line in said if ":FATAL:" in line), said[-1])


def _refusal(error: Error) -> str:
    """Return in one line why the connection failed, and what to do."""
    text = str(error)
    versions = dict(re.findall(r"(server|client) version: v([\d.]+)", text))
    if len(versions) == 2:
        install = shell_command(system.pip_install(f"playwright=={versions['server']}.*"))
        return (
            f"the server has Playwright {versions['server']}, this machine {versions['client']}; "
            f"install the same version: {install}"
        )
    said = re.sub(r"^BrowserType\.connect: (WebSocket error: )?(wss?://\S+ )?", "", first_line(error))
    if "playwright install" in text:
        return f"{said}; install Chromium on the server: python -m playwright install chromium"
    return f"no connection: {said}; expected the address of a running Playwright server, including its path"
