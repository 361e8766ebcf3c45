"""`webnorm verify --browser ws://...`: a browser behind a Playwright server in another process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_verify import report, reporting, write

from commands import webnorm
from headless import needs_browser
from patience import HANG_S
from webnorm.engines.launch import environment
from webnorm.errors import WebnormError
from webnorm.web.browser import launch
from webnorm.web.browser import visits as browsing
from webnorm.web.browser.visits import PageVisitor

pytestmark = needs_browser

RIGHT = "window.webnormReport = 1;"
# On Linux, Chromium offers no adapter without a flag.
ADAPTER = "window.webnormReport = (await navigator.gpu?.requestAdapter()) != null;"


# A server's machine has its own network. The only way in is a forwarded port, as with `ssh -L`. Its browsers
# can reach other machines only through Playwright.
ALONE = shutil.which("unshare") is not None and subprocess.run(["unshare", "-rn", "true"]).returncode == 0
FORWARDED = """
import fcntl, socket, struct, subprocess, sys, threading

with socket.socket() as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sh", b"lo", 1))
command = [sys.executable, "-m", "playwright", "run-server", "--port", "0", "--host", "127.0.0.1", "--unsafe"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
line = server.stdout.readline()
print(line, flush=True)

def pump(source, sink):
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass

listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    client = listener.accept()[0]
    inner = socket.create_connection(("127.0.0.1", int(line.split(":")[2].strip("/\\n"))))
    for ends in ((client, inner), (inner, client)):
        threading.Thread(target=pump, args=ends, daemon=True).start()
"""


class Server:
    """A Playwright server that imitates a server on another machine."""

    def __init__(self, browsers: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port, descriptor = listener.getsockname()[1], listener.fileno()
            settings = {**environment(), "PLAYWRIGHT_BROWSERS_PATH": str(browsers)}
            self.process = subprocess.Popen(
                [*(("unshare", "-rn") if ALONE else ()), sys.executable, "-c", FORWARDED, str(descriptor)],
                env={name: str(value) for name, value in settings.items()},
                pass_fds=[descriptor],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        self.name = f"ws://127.0.0.1:{port}"
        self.address = f"{self.name}/"
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("Listening on ws://")

    def signal(self, which: signal.Signals) -> None:
        os.killpg(self.process.pid, which)

    def end(self) -> None:
        """End the server; its browsers, which have their own process groups, end with it."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.communicate(timeout=HANG_S)


@contextmanager
def serving(browsers: Path) -> Iterator[Server]:
    server = Server(browsers)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture(scope="module")
def browsers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browsers")


@pytest.fixture(scope="module")
def server(browsers: Path) -> Iterator[Server]:
    """Start a server that finds the installed browser where Playwright installs its own."""
    with serving(browsers) as started:
        with PageVisitor(started.address) as browser, pytest.raises(WebnormError) as raised:
            browser.visit(browsers)
        missing = re.fullmatch(
            rf"{started.name}: Executable doesn't exist at (.*/chrome); "
            "install Chromium on the server: python -m playwright install chromium",
            str(raised.value),
        )
        assert missing is not None and missing[1].startswith(str(browsers))
        own = Path(missing[1])
        own.parent.mkdir(parents=True)
        own.write_text(f'#!/bin/sh\nexec {launch.find_browser()} "$@"\n')
        own.chmod(0o755)
        yield started


def test_a_package_is_verified_there(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "package", reporting(report()))
    monkeypatch.setenv("WEBNORM_BROWSER", server.address)
    done = webnorm(["verify", str(folder), "--screenshot", "page.png"], tmp_path)
    assert "pass  browser: 2 of 2 shaders run here, 2 of them right" in done.stdout.splitlines(), done.stderr
    assert f" at {server.name}, An adapter" in done.stdout
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert f"browser: {server.name}\n" in webnorm(["doctor", "--browser"], tmp_path).stdout


@pytest.mark.slow
def test_a_server_that_dies_or_hangs_is_reported_in_time(
    server: Server, browsers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "_GRACE_S", 1.0)
    right, runs = write(tmp_path / "right", RIGHT), write(tmp_path / "runs", "console.error('it runs');")
    with serving(browsers) as server, PageVisitor(server.address, time_limit_s=HANG_S) as browser:
        assert browser.visit(write(tmp_path / "asks", ADAPTER)).report is True
        server.signal(signal.SIGSTOP)
        browser.time_limit_s = 1.0
        with pytest.raises(WebnormError, match=r"^verify.html did not report within 1 s: stopped$"):
            browser.visit(right)
        with pytest.raises(WebnormError, match=rf"^{server.name} did not answer within 1 s: stopped$"):
            browser.visit(right)
        server.signal(signal.SIGCONT)
        browser.time_limit_s = HANG_S
        assert browser.visit(right).report == 1
        monkeypatch.setattr(browsing._Listener, "_console", lambda *_: server.signal(signal.SIGKILL))
        with pytest.raises(WebnormError, match=rf"^{server.name} was disconnected while it ran verify.html$"):
            browser.visit(runs)
        with pytest.raises(WebnormError, match=rf"^{server.name}: no connection: connect ECONNREFUSED 127"):
            browser.visit(right)


def answering(reply: str) -> str:
    """Return the address of a server that answers one client with a text and waits for its end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listener, listener.accept()[0] as client:
            client.recv(1 << 16)
            client.sendall(reply.encode())
            client.shutdown(socket.SHUT_WR)
            client.recv(1)

    threading.Thread(target=answer, daemon=True).start()
    return f"ws://user@127.0.0.1:{listener.getsockname()[1]}/secret"


NOT_ONE = "no connection: {}; expected the address of a running Playwright server, including its path"
# A Playwright server of another version gives this answer.
OTHER_VERSION = """HTTP/1.1 428 Precondition Required\r
\r
╔════════════════════════════════╗
║ Playwright version mismatch:   ║
║   - server version: v1.40      ║
║   - client version: v1.65      ║
╚════════════════════════════════╝"""


INSTALL = f"{sys.executable} -m pip install 'playwright==1.40.*'"


def test_refused_connections(tmp_path: Path) -> None:
    folder = write(tmp_path / "package")
    with PageVisitor("ws://unused") as browser:
        for reply, said in (
            (
                OTHER_VERSION,
                f"the server has Playwright 1.40, this machine 1.65; install the same version: {INSTALL}",
            ),
            ("HTTP/1.1 404 Not Found\r\n\r\n", NOT_ONE.format("404 Not Found")),
            ("no server", NOT_ONE.format("Parse Error: Expected HTTP/, RTSP/ or ICE/")),
        ):
            address = answering(reply)
            browser.opener = launch.RemoteBrowser(address)
            with pytest.raises(WebnormError) as raised:
                browser.visit(folder)
            assert str(raised.value) == f"ws://{address.partition('@')[2].rpartition('/')[0]}: {said}"


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/", "ws://", "ws://[::1/", "ws://a:99999/", "ws://a:0/"]
)
def test_wrong_addresses(
    address: str, tmp_path: Path, mistake: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "package")
    said = f"webnorm: {address}: no such browser; expected ws://HOST:PORT/... or wss://HOST/...\n"
    assert mistake(["verify", str(folder), "--browser", address]) == said
