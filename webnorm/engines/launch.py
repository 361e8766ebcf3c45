"""Starting an engine: a browser on an address, or a script in node or Deno. It ends with its context.

A browser gets a profile of its own, so that it also starts if the user's browser is open.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO

from webnorm import system
from webnorm.engines.catalog import URL, Engine
from webnorm.engines.node_webgpu import webgpu
from webnorm.errors import WebnormError, sentence
from webnorm.files.atomic import unnamed

_GUARDIAN = Path(__file__).parent / "guardian.py"
# WebGPU is off by default on Linux; the other flags prevent background requests of the browser.
CHROMIUM_ARGUMENTS = (
    "--enable-unsafe-webgpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Both WebGPU settings are needed on Linux. The others prevent background requests and first-run pages.
_FIREFOX_SETTINGS = {
    "dom.webgpu.enabled": True,
    "gfx.webgpu.ignore-blocklist": True,
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.aboutwelcome.enabled": False,
    "browser.safebrowsing.downloads.remote.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "media.gmp-manager.updateEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,#remote-settings-dummy/v1",
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}
# A script may read files and reach this machine's servers, but may not write or start programs.
_DENO_ARGUMENTS = (
    "run",
    "--unstable-webgpu",
    "--no-config",
    "--no-prompt",
    "--no-remote",
    "--allow-env",
    "--allow-net=127.0.0.1",
    "--allow-read",
)
_END_S = 20.0
# The part at the end of an engine's output that is read for the reason of its end.
_LAST_WORDS = 1 << 14


class RunningEngine:
    """A started engine."""

    def __init__(self, engine: Engine, process: subprocess.Popen[bytes], output: BinaryIO) -> None:
        self.engine, self._process, self._output = engine, process, output

    def ended(self) -> str | None:
        """Return why the engine has ended; None while it runs.

        A command that only hands the address to a browser may end at once.
        """
        status = self._process.poll()
        hands_over = bool(self.engine.command) or self.engine.name == "safari"
        if status is None or (status == 0 and hands_over):
            return None
        size = self._output.seek(0, 2)
        self._output.seek(max(0, size - _LAST_WORDS))
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        said = next(
            (line for line in lines if "FATAL" in line or "rror:" in line), lines[-1] if lines else ""
        )
        return f"exit status {status}{f': {sentence(said)}' if said else ''}"

    def wait(self) -> None:
        """Wait until the engine ends."""
        self._process.wait()

    def end(self) -> None:
        """End the engine and its children, and remove its profile. Any thread may call this."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def start_browser(engine: Engine, url: str) -> Iterator[RunningEngine]:
    """Start a browser without a window on an address, and end it with the context.

    Raises WebnormError if it cannot be started.
    """
    profile = mkdtemp(prefix="webnorm-")
    with _guarded(engine, profile, _browser_command(engine, url, Path(profile))) as running:
        yield running


@contextmanager
def start_engine(engine: Engine, url: str, script: Path, *arguments: str) -> Iterator[RunningEngine]:
    """Start a browser on an address, or node or Deno with a script, and end it with the context.

    In node, the folder of the npm package webgpu is the script's last argument; Deno has WebGPU itself.

    Raises WebnormError if it cannot be started.
    """
    if engine.is_browser:
        with start_browser(engine, url) as running:
            yield running
        return
    options = _DENO_ARGUMENTS if engine.name == "deno" else ()
    dawn = (str(webgpu()),) if engine.name == "node" else ()
    command = (str(engine.program), *options, str(script), *arguments, *dawn)
    with _guarded(engine, mkdtemp(prefix="webnorm-"), command) as running:
        yield running


def environment() -> dict[str, str]:
    """Return this process's environment, changed so that Chromium finds its own software driver.

    Chromium names its driver in the older of Vulkan's two variables, and the newer variable would override
    it.
    """
    own = {**os.environ}
    drivers = own.pop("VK_DRIVER_FILES", None)
    return own if drivers is None else {**own, "VK_ICD_FILENAMES": drivers}


@contextmanager
def _guarded(engine: Engine, folder: str, command: tuple[str, ...]) -> Iterator[RunningEngine]:
    """Start a command below a guardian, which ends it and removes the folder even if this process dies."""
    with unnamed() as output:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", str(_GUARDIAN), folder, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_environment_of(engine, folder),
                # Signals to this process' group, such as Ctrl-C's, must not end the guardian.
                start_new_session=True,
            )
        except OSError as error:
            os.rmdir(folder)
            raise WebnormError(f"{engine} cannot be started: {error.strerror}") from error
        running = RunningEngine(engine, process, output)
        try:
            yield running
        finally:
            running.end()


def _environment_of(engine: Engine, folder: str) -> dict[str, str]:
    own = environment() if engine.name in ("chromium", "edge") else {**os.environ}
    quiet = {"MOZ_CRASHREPORTER_DISABLE": "1", "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}
    drivers = system.dawn_drivers() if engine.name == "node" else {}
    return {"XDG_RUNTIME_DIR": folder, **own, **quiet, **drivers}


def _browser_command(engine: Engine, url: str, profile: Path) -> tuple[str, ...]:
    if engine.command:
        return (str(engine.program), *(word.replace(URL, url) for word in engine.command[1:]))
    if engine.name == "safari":
        return ("open", "-a", str(engine.program.parents[2]), url)
    if engine.name == "firefox":
        lines = (
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
            for name, value in _FIREFOX_SETTINGS.items()
        )
        (profile / "user.js").write_text("".join(lines), encoding="utf-8")
        return (str(engine.program), "--headless", "--no-remote", "--profile", str(profile), url)
    sandbox = ("--no-sandbox",) if system.is_root() else ()
    return (
        str(engine.program),
        "--headless=new",
        f"--user-data-dir={profile}",
        *CHROMIUM_ARGUMENTS,
        *sandbox,
        url,
    )
