"""`webnorm verify --lan`: a browser of the local network reports over HTTPS, and only with the token.

The fake phones here connect only if the certificate has the fingerprint that `verify` shows.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from packages import Export
from test_verify import report, reporting, write
from test_verify_lab import RIGHT
from test_verify_lab import report as lab_report
from test_verify_lab import write as write_lab

from commands import webnorm
from headless import needs_browser, needs_tint, started
from patience import HANG_S
from webnorm import serving
from webnorm.cli.terminal.screen import Screen
from webnorm.cli.verbs.verify_lan import show_invitation, shows_codes
from webnorm.errors import WebnormError
from webnorm.system import Unavailable
from webnorm.web import verify
from webnorm.web.browser import lan, lan_visits
from webnorm.web.browser.lan_visits import Invitation, LanVisitor, browser_name
from webnorm.web.folder import write_folder
from webnorm.web.pages import page_files

pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'webnorm[lan]'")
segno = pytest.importorskip("segno", reason="segno is not installed: pip install 'webnorm[lan]'")

HERE = "127.0.0.1"
IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/26.0 Mobile/15E148 Safari/604.1"
)
ANDROID = (
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 "
    "Mobile Safari/537.36"
)
AGENTS = {
    IPHONE: "Safari 26.0",
    ANDROID: "Chrome 141",
    f"{ANDROID} EdgA/140.0": "Edge 140",
    f"{ANDROID} OPR/90.1": "Opera 90",
    IPHONE.replace("Version/26.0", "CriOS/141.0"): "Chrome 141",
    IPHONE.replace("Version/26.0", "FxiOS/143.2"): "Firefox 143",
    "Mozilla/5.0 (Android 15; Mobile; rv:143.0) Gecko/143.0 Firefox/143.0": "Firefox 143",
    "something else": "something else",
}


class Phone:
    """A browser that pins the certificate."""

    def __init__(self, invitation: Invitation, at: int = 0) -> None:
        self.url, self.fingerprint = urlsplit(invitation.urls[at]), invitation.fingerprint
        self.origin = f"https://{self.url.netloc}"
        self.token = self.url.path.split("/")[1]
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
        """Send a request, and return the status and the text of the answer."""
        with closing(
            http.client.HTTPSConnection(self.url.netloc, timeout=HANG_S, context=self.context)
        ) as connection:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            found = sha256(connection.sock.getpeercert(binary_form=True) or b"").digest()
            assert found.hex(":").upper() == self.fingerprint
            sent = {
                "User-Agent": IPHONE,
                **{name.replace("_", "-"): value for name, value in headers.items()},
            }
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def load(self) -> str:
        """Load the page, and return it."""
        status, text = self.ask("GET", self.url.path)
        assert status == 200
        return text

    def post(self, data: Any, failure: str | None = None, errors: tuple[str, ...] = ()) -> int:
        """Post a report as the page does, and return the status of the answer."""
        body = json.dumps({"report": data, "failure": failure, "errors": errors})
        return self.ask("POST", f"/{self.token}/report", body, Origin=self.origin)[0]

    def is_refused(self) -> bool:
        """Return whether nothing listens at the address any more."""
        try:
            socket.create_connection((self.url.hostname, self.url.port or 443), HANG_S).close()
        except ConnectionRefusedError:
            return True
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "package", reporting(report()))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, which is empty after each test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert [*folder.iterdir()] == []


@contextmanager
def visitor(act: Callable[[Phone], object], **options: Any) -> Iterator[LanVisitor]:
    """A visitor on this machine's loopback address, where a phone acts once it is invited."""
    phones: list[Phone] = []

    def invite(invitation: Invitation) -> None:
        phones.append(Phone(invitation))
        act(phones[0])

    given = {"host": HERE, "time_limit_s": HANG_S, **options}
    with LanVisitor(invite, lambda *_: None, **given) as opened:
        yield opened
    assert all(phone.is_refused() for phone in phones)


# --- the server --------------------------------------------------------------------------------------


def test_a_phone_reports(folder: Path) -> None:
    def act(phone: Phone) -> None:
        page = phone.load()
        script = page.partition('<script src="')[2].partition('"')[0]
        assert "webnormReport" in phone.ask("GET", script)[1]
        assert phone.url.query == "quick"
        assert phone.post([1, 2], errors=("first\nsecond",)) == 204
        assert phone.post([3]) == 409

    with visitor(act) as opened:
        found = opened.visit(folder, "?quick")
    assert (found.report, found.remarks, found.browser) == ([1, 2], ("first",), "Safari 26.0")


def test_only_the_page_can_report(folder: Path) -> None:
    posted = json.dumps({"report": "wrong", "failure": None, "errors": []})

    def act(phone: Phone) -> None:
        page, report = f"/{phone.token}/verify.html", f"/{phone.token}/report"
        port = phone.url.port
        for path in ("/", "/verify.html", f"/{phone.token[:-1]}/verify.html", "/wrong/report", "//report"):
            assert phone.ask("GET", path)[0] == 404
            assert phone.ask("POST", path, posted)[0] == 404
        for host in ("example.com", HERE, f"localhost:{port}", f"{phone.url.netloc}/{phone.token}"):
            assert phone.ask("GET", page, Host=host)[0] == 403
            assert phone.ask("POST", report, posted, Host=host)[0] == 403
        for origin in ("https://example.com", "null", f"http://{phone.url.netloc}", f"https://{HERE}"):
            assert phone.ask("POST", report, posted, Origin=origin)[0] == 403
        assert phone.ask("GET", f"/{phone.token}/../../etc/passwd")[0] == 404
        assert phone.post("right") == 204

    with visitor(act) as opened:
        assert opened.visit(folder).report == "right"


def test_without_https_there_is_no_answer(folder: Path) -> None:
    def act(phone: Phone) -> None:
        with closing(http.client.HTTPConnection(phone.url.netloc, timeout=HANG_S)) as connection:
            connection.request("GET", phone.url.path)
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                connection.getresponse()
        phone.post(1)

    with visitor(act) as opened:
        opened.visit(folder)


def test_the_certificate_is_for_the_address(folder: Path) -> None:
    """A browser that trusts the certificate accepts it."""

    def act(phone: Phone) -> None:
        address = (HERE, phone.url.port or 443)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=ssl.get_server_certificate(address))
        with (
            socket.create_connection(address, HANG_S) as connection,
            context.wrap_socket(connection, server_hostname=HERE) as trusted,
        ):
            assert (trusted.getpeercert() or {})["subjectAltName"] == (("IP Address", HERE),)
        phone.post(1)

    with visitor(act) as opened:
        opened.visit(folder)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no second loopback address")
def test_each_address_is_an_origin_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lan_visits, "chosen_addresses", lambda _: [HERE, "127.0.0.2"])

    def invite(invitation: Invitation) -> None:
        first, second = Phone(invitation), Phone(invitation, 1)
        assert second.url.hostname == "127.0.0.2" and first.token == second.token
        for phone in (first, second):
            script = phone.load().partition('<script src="')[2].partition('"')[0]
            assert phone.ask("GET", script)[0] == 200
            # Nothing listens on the machine's other addresses.
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.3", phone.url.port or 443), HANG_S)
        assert second.ask("POST", f"/{second.token}/report", "[", Origin=first.origin)[0] == 403
        assert (
            second.post(failure=f"TypeError: no ({second.origin}/{second.token}/page.js:1:7)", data=1) == 204
        )

    expected = r"^verify.html failed: TypeError: no \(page.js:1:7\)$"
    with (
        LanVisitor(invite, lambda *_: None, time_limit_s=HANG_S) as opened,
        pytest.raises(WebnormError, match=expected),
    ):
        opened.visit(folder)


def test_the_key_is_a_private_file_and_gone_before_the_server_starts(
    folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, seen = uvicorn.Config.load, []

    def loaded(config: uvicorn.Config) -> None:
        key = Path(config.ssl_keyfile or "")
        seen.append((key.parent.parent, key.parent.stat().st_mode & 0o777, "PRIVATE KEY" in key.read_text()))
        load(config)

    def act(phone: Phone) -> None:
        assert [*temporary.iterdir()] == []
        phone.post(1)

    monkeypatch.setattr(uvicorn.Config, "load", loaded)
    with visitor(act) as opened:
        opened.visit(folder)
    assert seen == [(temporary, 0o700, True)]


def test_a_silent_connection_does_not_keep_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "GRACE_S", 1)
    with closing(socket.socket()) as silent:

        def act(phone: Phone) -> None:
            silent.connect((HERE, phone.url.port or 443))
            phone.post(1)

        with visitor(act) as opened:
            opened.visit(folder)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda phone: None, "no browser opened verify.html within 0.1 s: stopped"),
        (lambda phone: phone.load(), "verify.html did not report within 0.1 s: stopped"),
        (
            # A mistyped path is not the page's.
            lambda phone: (phone.ask("GET", f"/{phone.token}/verify"), phone.load()),
            "verify.html did not report within 0.1 s: stopped",
        ),
        (
            lambda phone: (phone.load(), phone.ask("GET", f"/{phone.token}/gone.js")),
            "verify.html requests /gone.js, which is missing; export again",
        ),
    ],
)
def test_a_phone_that_does_not_report(
    act: Callable[[Phone], object], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time begins after the invitation, and is over at once."""
    times = iter((0.0, *[1.0] * ("gone" in message)))
    monkeypatch.setattr(lan_visits, "monotonic", lambda: next(times, 9.0))
    with visitor(act, time_limit_s=0.1) as opened, pytest.raises(WebnormError, match=f"^{message}$"):
        opened.visit(folder)


def test_progress_names_the_browser(folder: Path) -> None:
    said: list[str | None] = []
    phones: list[Phone] = []

    def update(text: str | None, share: float | None) -> None:
        said.append(text)
        phone = phones[0]
        if len(said) == 1:
            phone.load()
        elif said[-1] != said[0]:
            phone.post(1)

    def invite(invitation: Invitation) -> None:
        phones.append(Phone(invitation))

    with LanVisitor(invite, update, host=HERE, time_limit_s=HANG_S) as opened:
        opened.visit(folder)
    assert [*dict.fromkeys(said)] == [
        "waiting for a browser to open verify.html",
        "Safari 26.0 runs verify.html",
    ]


def test_a_phone_takes_no_picture(folder: Path) -> None:
    with visitor(lambda _: None) as opened, pytest.raises(WebnormError, match="leave --screenshot out"):
        opened.visit(folder, screenshot=True)


# --- addresses and names -----------------------------------------------------------------------------


def test_private_addresses_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ["192.168.1.5", "8.8.8.8", "127.0.0.1", "10.0.0.2", "192.168.1.5", "169.254.1.1", "172.32.0.1"]
    monkeypatch.setattr(lan, "_own_addresses", lambda: iter(found))
    assert lan.chosen_addresses(None) == ["192.168.1.5", "10.0.0.2"]
    assert lan.chosen_addresses("8.8.8.8") == ["8.8.8.8"]
    found[:] = found[1:3]
    with pytest.raises(WebnormError, match=r"^--lan: this machine has no address in .*--host$"):
        lan.chosen_addresses(None)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no names of loopback interfaces")
def test_every_interface_is_found() -> None:
    assert HERE in [*lan._interface_addresses()]


@pytest.mark.parametrize("host", ["0.0.0.0", "::1", "localhost", "", "224.0.0.1", "1.2.3", "a\nb"])
def test_a_host_is_an_address(host: str) -> None:
    with pytest.raises(WebnormError, match=r"^--host is '.*'; expected an IPv4 address of this machine$"):
        lan.chosen_addresses(host)


def test_a_browser_has_the_same_name_in_both_languages(tmp_path: Path) -> None:
    assert {agent: browser_name(agent) for agent in AGENTS} == AGENTS
    if shutil.which("node") is None:
        pytest.skip("node is not installed: install Node.js 20 or later")
    write_folder(page_files("verify"), tmp_path / "site")
    (tmp_path / "site" / "package.json").write_text('{"type": "module"}')
    (module,) = (tmp_path / "site").rglob("gpu.js")
    script = f"""
import {{ browserName }} from {json.dumps(module.as_uri())};
const names = {json.dumps([*AGENTS])}.map((userAgent) => {{
  Object.defineProperty(globalThis, "navigator", {{ value: {{ userAgent }}, configurable: true }});
  return browserName();
}});
console.log(JSON.stringify(names));
"""
    command = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert json.loads(done.stdout) == [*AGENTS.values()]


# --- the steps and the command -----------------------------------------------------------------------


def steps(folder: Path, act: Callable[[Phone], object], **options: Any) -> dict[str, verify.StepFinding]:
    with visitor(act) as opened:
        return {one.step: one for one in verify.verify(folder, lan=opened, update=lambda *_: None, **options)}


@needs_tint
def test_the_step_has_the_browsers_name(folder: Path) -> None:
    found = steps(folder, lambda phone: phone.post(report()))["Safari 26.0"]
    assert found.passed and found.text == "2 of 2 shaders run here, 2 of them right"
    assert found.seen is not None and found.seen.engine == found.seen.browser == "Safari 26.0"
    wrong = report(vectors=[{"name": "mixed", "verdict": "fail", "max_abs_error": 1.0, "reason": "y is 1"}])
    assert steps(folder, lambda phone: phone.post(wrong))["Safari 26.0"].passed is False
    found = steps(folder, lambda phone: phone.post({"error": "No WebGPU here."}))["Safari 26.0"]
    assert (found.passed, found.text) == (None, "verify.html could not check: No WebGPU here.")


@needs_tint
def test_a_lab_is_opened_once(tmp_path: Path) -> None:
    lab = write_lab(tmp_path / "lab")
    found = steps(lab, lambda phone: phone.post(lab_report(*RIGHT)))["Safari 26.0"]
    assert found.passed and found.text.endswith("3 of 3 kernels run here, 3 right")
    assert found.remarks == ("Safari 26.0, an adapter", "1 of 2 problems were not opened")


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Phone]]:
    """Run the command until it waits, and yield its process and a phone that has read its output."""
    command = [sys.executable, "-m", "webnorm", "verify", str(folder), "--lan", "--host", HERE, *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        text = ""
        while "Waiting for" not in text:
            line = process.stdout.readline()
            assert line, process.communicate()
            text += line
        urls = re.findall(r"https:\S+", text)
        (fingerprint,) = re.findall(r"(?:[0-9A-F]{2}:){31}[0-9A-F]{2}", text)
        assert "warns about the certificate" in text and "▀" not in text
        yield process, Phone(Invitation((*urls,), fingerprint, 0.0))


@needs_tint
def test_the_command_waits_for_a_phone(folder: Path) -> None:
    with running(folder, "--quick") as (process, phone):
        assert phone.url.query == "quick"
        assert phone.post(report()) == 204
        stdout, stderr = process.communicate(timeout=HANG_S)
    assert (process.returncode, stderr) == (0, "")
    assert "pass  Safari 26.0: 2 of 2 shaders run here, 2 of them right" in stdout
    assert phone.is_refused()


@needs_tint
def test_ctrl_c_ends_the_server(folder: Path) -> None:
    with running(folder) as (process, phone):
        phone.load()
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=HANG_S)
    assert (process.returncode, stderr) == (130, "webnorm: interrupted; finished results are shown\n")
    assert phone.is_refused()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", HERE), "--host needs --lan: "),
        (("--port", "8443"), "--port needs --lan: "),
        (("--lan", "--browser", "chromium"), "--lan and --browser cannot be combined"),
        (("--lan", "--engine", "node"), "--lan and --engine cannot be combined"),
        (("--lan", "--screenshot", "page.png"), "--lan and --screenshot cannot be combined"),
        (("--lan", "--host", "0.0.0.0"), "--host is '0.0.0.0'; expected an IPv4 address of this machine"),
        (("--lan", "--host", "192.0.2.77"), "cannot listen on port 0 of 192.0.2.77"),
    ],
)
def test_a_wrong_command(options: tuple[str, ...], message: str, folder: Path, tmp_path: Path) -> None:
    done = webnorm(["verify", str(folder), *options], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_a_port_in_use_is_one_line(folder: Path, tmp_path: Path) -> None:
    with closing(socket.create_server((HERE, 0))) as taken:
        port = str(taken.getsockname()[1])
        done = webnorm(["verify", str(folder), "--lan", "--host", HERE, "--port", port], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"port {port} of {HERE} is in use" in done.stderr and done.stderr.count("\n") == 1


def test_a_missing_library_is_one_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hiding:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name in ("cryptography", "segno"):
                raise ModuleNotFoundError(name=name)

    for name in [one for one in sys.modules if one.partition(".")[0] in ("cryptography", "segno")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Hiding, *sys.meta_path])
    done = webnorm(["verify", str(folder), "--lan", "--host", HERE], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("webnorm: --lan needs cryptography.x509, which is not installed: ")
    assert done.stderr.endswith(" -m pip install 'webnorm[lan]'\n") and done.stderr.count("\n") == 1
    with pytest.raises(Unavailable, match=r"--lan needs segno, which is not installed: .*lan"):
        lan.qr_codes()


# --- the invitation ----------------------------------------------------------------------------------

URL = "https://192.168.100.200:40513/OxHJvpJlUiyGFi9xn2IoXnoMpTpZhxol/verify.html?quick"


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    """Let standard output count as a terminal of 100 columns with colours."""
    terminal = {"TTY_COMPATIBLE": "1", "FORCE_COLOR": "1", "COLUMNS": "100", "TERM": "xterm", "NO_COLOR": ""}
    for name, value in {**terminal, **changes}.items():
        monkeypatch.setenv(name, value)


def invitation_text(capsys: pytest.CaptureFixture[str]) -> str:
    console = Screen()
    invitation = Invitation((URL, URL.replace("192", "10")), "AB:CD", 600.0)
    show_invitation(console, invitation, segno if shows_codes(console) else None)
    return capsys.readouterr().out


def test_a_terminal_shows_the_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks are the code of the first address, dark on light."""
    on_a_terminal(monkeypatch)
    text = invitation_text(capsys)
    lines = re.findall(r"\x1b\[30;107m([ ▀▄█]+)\x1b\[0m", text)
    code = [*segno.make_qr(URL, error="l").matrix_iter()]
    found: list[list[int]] = []
    for line in lines:
        found += [[int(char in "▀█") for char in line], [int(char in "▄█") for char in line]]
    assert found[: len(code)] == [[*map(int, row)] for row in code]
    assert URL in text and "AB:CD" in text and "600 s" in text


@pytest.mark.parametrize(
    "environment",
    [{"NO_COLOR": "1"}, {"TTY_COMPATIBLE": "0"}, {"COLUMNS": "44"}, {"TERM": "dumb", "FORCE_COLOR": ""}],
)
def test_a_terminal_that_cannot_show_the_code(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still shows the address in one piece."""
    on_a_terminal(monkeypatch, **environment)
    text = invitation_text(capsys)
    assert not set("▀▄█") & set(text)
    assert f"  {URL}\n" in text and "AB:CD" in text


# --- a real browser ----------------------------------------------------------------------------------


@needs_tint
@needs_browser
def test_a_package_in_chromium(tmp_path: Path) -> None:
    """Chromium opens the address with its own requests, and has WebGPU there."""

    def act(phone: Phone) -> None:
        page = browser.new_page()
        with page.expect_response(f"{phone.origin}/{phone.token}/report"):
            page.goto(phone.url.geturl())
        # Chromium does not answer the end of an idle TLS connection, for which the server waits 30 s.
        page.context.close()

    package = Export("rms_norm", (8,), "float32").write(tmp_path / "rms")
    with started("--ignore-certificate-errors") as browser:
        found = steps(package, act)
    name = f"Chrome {browser.version.partition('.')[0]}"
    assert found[name].passed, found
    assert found[name].text.endswith("of them right")
