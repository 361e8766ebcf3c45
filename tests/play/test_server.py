"""The page's server over real sockets: refused requests, calls of the playground, streamed snapshots."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest
from fake import Fake, digest

from patience import HANG_S, until
from webnorm.errors import WebnormError
from webnorm.play.request_guard import MOST_BYTES
from webnorm.play.server import PlaygroundServer, _routes

TEXT = "fn main() {}"
HASH = digest(TEXT)
ROUTES = (
    ("GET", "/api/events"),
    ("PUT", "/api/file"),
    ("POST", "/api/run"),
    ("POST", "/api/settings"),
    ("POST", "/api/trace"),
    ("POST", "/api/fork"),
    ("GET", "/api/lessons"),
    ("POST", "/api/lesson"),
    ("POST", "/api/here"),
    ("POST", "/api/export"),
    ("GET", f"/api/source/{HASH}"),
    ("GET", "/api/kernels"),
    ("GET", "/api/guide"),
    ("GET", "/api/kernel/layer_norm/two_pass"),
    ("GET", "/api/nothing"),
    ("GET", "/nothing"),
    ("GET", "/page/../../server.py"),
    ("GET", "/page/%2e%2e/lab.html"),
    ("DELETE", "/api/file"),
)
FREE = ("/", "/page/style.css", "/vendor/editor.js", "/vendor/LICENSES.txt")
HEADERS = {
    "cache-control": "no-store",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@pytest.fixture(scope="module")
def fake() -> Fake:
    return Fake(sources={"two_pass": TEXT})


@pytest.fixture(scope="module")
def server(fake: Fake) -> Iterator[PlaygroundServer]:
    with PlaygroundServer(fake) as started:
        yield started


def sent(
    server: PlaygroundServer,
    method: str,
    path: str,
    body: Any = None,
    token: str | None = None,
    **headers: str,
) -> HTTPResponse:
    """Send a request and read the answer; `token` None sends the right token, "" sends none."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token != "":
        given["Authorization"] = f"Bearer {token or server.token}"
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, content, given)
    answer = connection.getresponse()
    endless = str(answer.getheader("content-type")).startswith("text/event-stream")
    answer.body = b"" if endless else answer.read()  # type: ignore[attr-defined]
    answer.close()
    connection.close()
    return answer


def content(answer: HTTPResponse) -> Any:
    return json.loads(answer.body)  # type: ignore[attr-defined]


def test_the_list_contains_every_route(fake: Fake) -> None:
    for route in _routes(fake, None):  # type: ignore[arg-type]
        listed = [method for method, path in ROUTES if route.path_regex.match(path)]
        assert set(listed) & (route.methods or set()), route.path


def test_every_route_refuses_a_missing_or_wrong_token(server: PlaygroundServer) -> None:
    for method, path in ROUTES:
        for token in ("", "x", server.token[:-1], server.token + "x"):
            answer = sent(server, method, path, {} if method != "GET" else None, token=token)
            assert answer.status == 403, (method, path)
            assert content(answer)["error"].startswith("the token is missing or wrong")
    for authorization in (server.token, f"Basic {server.token}", f"Bearer  {server.token}"):
        assert sent(server, "GET", "/api/kernels", token="", Authorization=authorization).status == 403


def test_foreign_hosts_and_origins_are_refused_on_every_route(server: PlaygroundServer) -> None:
    at = f"127.0.0.1:{server.port}"
    foreign: tuple[dict[str, str], ...] = (
        {"Host": f"evil.example:{server.port}"},
        {"Host": "127.0.0.1"},
        {"Host": f"127.0.0.1:{server.port + 1}"},
        {"Host": f"{at}.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://{at}"},
        {"Origin": f"http://127.0.0.1:{server.port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    )
    for method, path in (*ROUTES, *(("GET", path) for path in FREE)):
        for headers in foreign:
            answer = sent(server, method, path, {} if method != "GET" else None, **headers)
            assert answer.status == 403, (method, path, headers)
    for headers in (
        {"Host": f"localhost:{server.port}", "Origin": f"http://localhost:{server.port}"},
        {"Host": at, "Origin": f"http://{at}", "Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
    ):
        assert sent(server, "GET", "/api/kernels", **headers).status == 200


def test_a_request_with_no_host_or_two_is_refused(server: PlaygroundServer) -> None:
    right = f"Host: 127.0.0.1:{server.port}\r\n"
    for version, hosts in (("1.0", ""), ("1.1", ""), ("1.1", right + "Host: evil.example\r\n")):
        with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as raw:
            raw.sendall(f"GET / HTTP/{version}\r\n{hosts}\r\n".encode())
            with raw.makefile("rb") as answer:
                assert answer.readline().split()[1] in (b"400", b"403")


def test_the_page_needs_no_token_and_every_answer_has_the_headers(server: PlaygroundServer) -> None:
    answers = [sent(server, "GET", path, token="") for path in FREE]
    assert [answer.status for answer in answers] == [200] * len(FREE)
    kinds = [str(answer.getheader("content-type")).partition(";")[0] for answer in answers]
    assert kinds == ["text/html", "text/css", "text/javascript", "text/plain"]
    answers += [sent(server, "GET", path) for path in ("/api/kernels", "/api/nothing", "/nothing")]
    answers += [sent(server, "POST", "/"), sent(server, "GET", "/", Host="evil.example")]
    assert [answer.status for answer in answers[len(FREE) :]] == [200, 404, 404, 405, 403]
    for answer in answers:
        assert HEADERS.items() <= {name.lower(): value for name, value in answer.getheaders()}.items()
        policy = str(answer.getheader("content-security-policy"))
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self' 'nonce-")
        assert "unsafe" not in policy and answer.getheader("server") is None
    # The nonce for styles is new in each answer, and the page contains it.
    pages = [sent(server, "GET", "/") for _ in range(2)]
    nonces = [
        str(page.getheader("content-security-policy")).split("'nonce-")[1].split("'")[0] for page in pages
    ]
    assert nonces[0] != nonces[1]
    for page, nonce in zip(pages, nonces, strict=True):
        assert f'nonce="{nonce}"'.encode() in page.body  # type: ignore[attr-defined]


def test_bodies_are_bounded(server: PlaygroundServer, fake: Fake) -> None:
    fake.asked.clear()
    answer = sent(server, "PUT", "/api/file", b"", Content_Length=str(MOST_BYTES + 1))
    assert answer.status == 413 and "2000000 bytes" in content(answer)["error"]
    # A chunked body has no length in its header.
    connection = HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    pieces = iter([b" " * 500_000] * 5)
    headers = {"Authorization": f"Bearer {server.token}"}
    connection.request("PUT", "/api/file", pieces, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    large = {"text": "x" * (MOST_BYTES - 200), "base": "0" * 64}
    assert sent(server, "PUT", "/api/file", large).status == 409
    assert [what for what, *_ in fake.asked] == ["save"]


def test_a_save_is_refused_after_another_change_of_the_file(server: PlaygroundServer, fake: Fake) -> None:
    base = fake.snapshot()["file"]["base"]
    answer = sent(server, "PUT", "/api/file", {"text": "mine", "base": base})
    revision = fake.snapshot()["revision"]
    assert (answer.status, content(answer)) == (200, {"base": digest("mine"), "revision": revision})
    answer = sent(server, "PUT", "/api/file", {"text": "mine, too", "base": base})
    assert (answer.status, content(answer)) == (409, {"error": "my.wgsl changed; nothing was written"})
    assert fake.snapshot()["file"]["text"] == "mine"


def test_requests_of_the_page_reach_the_playground(server: PlaygroundServer, fake: Fake) -> None:
    fake.asked.clear()
    for path, body in (
        ("run", None),
        ("trace", {"filter": "row == 3u"}),
        ("trace", {"filter": None}),
        ("fork", {"op": "layer_norm", "kernel": "two_pass"}),
        ("settings", {"time": False, "constants": {"threads_per_row": 8, "hi_lo_mean": True}}),
    ):
        assert (sent(server, "POST", f"/api/{path}", body)).status == 200
    assert fake.asked == [
        ("run",),
        ("trace", "row == 3u"),
        ("trace", None),
        ("fork", "layer_norm", "two_pass"),
        ("change", {"time": False, "constants": {"threads_per_row": 8, "hi_lo_mean": True}}),
    ]
    assert content(sent(server, "GET", "/api/kernels"))[0]["kernel"] == "two_pass"
    for path in (f"/api/source/{HASH}", "/api/kernel/layer_norm/two_pass"):
        assert sent(server, "GET", path).body == TEXT.encode()  # type: ignore[attr-defined]
    assert sent(server, "POST", "/api/export").body == fake.export(False)  # type: ignore[attr-defined]


def test_a_package_of_a_wrong_kernel_needs_force(
    fake: Fake, server: PlaygroundServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "unfit", "kernel my is wrong")
    refused = sent(server, "POST", "/api/export")
    assert (refused.status, content(refused)) == (422, {"error": "kernel my is wrong"})
    assert sent(server, "POST", "/api/export", {"force": True}).status == 200
    assert sent(server, "POST", "/api/export", {"force": 1}).status == 400


@pytest.mark.parametrize(
    "method, path, body, message",
    [
        ("PUT", "/api/file", {"text": "a"}, "the body.base is missing"),
        ("PUT", "/api/file", {"text": 1, "base": HASH}, "the body.text is 1; expected str"),
        (
            "PUT",
            "/api/file",
            {"text": "a", "base": HASH, "path": "/etc/passwd"},
            "the body.path is unknown; expected text, base",
        ),
        ("PUT", "/api/file", b"{", "the body is not JSON"),
        ("PUT", "/api/file", b"\xff", "the body is not JSON"),
        ("PUT", "/api/file", b"[" * 100_000, "the body is not JSON"),
        ("POST", "/api/run", {"x": 1}, "the body.x is unknown; expected "),
        ("POST", "/api/settings", {"run": "yes"}, "the body.run is 'yes'; expected bool"),
        ("POST", "/api/settings", [], "the body is []"),
        ("POST", "/api/trace", {"filter": 3}, "the body.filter is 3; expected str"),
        ("POST", "/api/fork", {"op": "layer_norm", "kernel": "../../x"}, "the body.kernel is '../../x'"),
        ("GET", "/api/kernel/layer_norm/..%2f..%2fx", None, "Not Found"),
        ("GET", "/api/kernel/layer_norm/%2e%2e", None, "the kernel.kernel is '..'"),
        ("GET", "/api/kernel/layer_norm/none", None, "unknown kernel 'none'"),
        ("GET", "/api/source/..", None, "the attempt.hash is '..'"),
        ("GET", f"/api/source/{'0' * 64}", None, "no attempt has the hash"),
    ],
)
def test_an_invalid_request_is_answered_in_one_line(
    server: PlaygroundServer, method: str, path: str, body: Any, message: str
) -> None:
    answer = sent(server, method, path, body)
    assert answer.status == (404 if message == "Not Found" else 400)
    assert content(answer)["error"].startswith(message)


def test_a_failure_is_reported_and_the_server_continues(
    server: PlaygroundServer, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "texts", None)
    answer = sent(server, "GET", f"/api/source/{HASH}")
    assert answer.status == 500 and content(answer)["error"].startswith("webnorm failed: TypeError: ")
    monkeypatch.undo()
    assert sent(server, "GET", f"/api/source/{HASH}").status == 200


# --- the socket ---


def test_nothing_listens_beyond_loopback(server: PlaygroundServer) -> None:
    assert server._socket.getsockname()[0] == "127.0.0.1"
    assert server.url.startswith(f"http://127.0.0.1:{server.port}/#") and len(server.token) == 32
    own = {str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None)} - {"127.0.0.1"}
    for address in ("127.0.0.2", "::1", *own):
        with pytest.raises(OSError):
            socket.create_connection((address, server.port), timeout=HANG_S)


def test_a_port_in_use_is_one_line(server: PlaygroundServer) -> None:
    with pytest.raises(WebnormError, match=rf"^port {server.port} of 127\.0\.0\.1 is in use"):
        PlaygroundServer(Fake(), server.port)
    with pytest.raises(WebnormError, match=r"^the port is 70000; expected 0 to 65535"):
        PlaygroundServer(Fake(), 70000)


# --- events ---


class Stream:
    """A reader of a server's events."""

    def __init__(self, server: PlaygroundServer) -> None:
        self._connection = HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
        self._connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {server.token}"})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()

    def next(self) -> Any:
        """Return the next snapshot, or another line as bytes; b"" at the end."""
        line = self._answer.readline()
        assert self._answer.readline() in (b"\n", b"")
        return json.loads(line.removeprefix(b"data: ")) if line.startswith(b"data: ") else line

    def newest(self, fake: Fake) -> Any:
        """Return the playground's newest snapshot, and skip older ones."""
        while (snapshot := self.next())["revision"] < fake.snapshot()["revision"]:
            pass
        return snapshot


def test_each_revision_is_streamed_to_all(server: PlaygroundServer, fake: Fake) -> None:
    with Stream(server) as one, Stream(server) as other:
        first = one.newest(fake)["revision"]
        assert other.newest(fake)["revision"] == first
        fake.change_state(working="verdict")
        for stream in (one, other):
            snapshot = stream.next()
            assert (snapshot["revision"], snapshot["working"]) == (first + 1, "verdict")


def test_a_slow_reader_gets_the_newest(server: PlaygroundServer, fake: Fake) -> None:
    with Stream(server) as stream:
        begin, count = stream.newest(fake)["revision"], 60
        for _ in range(count):
            # In total this exceeds the buffers of the sockets.
            fake.change_state(ballast="x" * 500_000)
            until(lambda: fake.returned == fake.snapshot()["revision"])
        seen = [begin]
        while seen[-1] < begin + count:
            seen.append(stream.next()["revision"])
        assert seen == sorted(set(seen)) and len(seen) < count
    fake.change_state(ballast="")


def test_a_number_that_json_lacks_is_null(server: PlaygroundServer, fake: Fake) -> None:
    fake.change_state(worst=float("inf"))
    with Stream(server) as stream:
        assert stream.newest(fake)["worst"] is None


def test_stopping_ends_streams_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webnorm.play.server.HEARTBEAT_S", 0.05)
    with PlaygroundServer(Fake()) as server, Stream(server) as stream:
        assert stream.next()["revision"] == 1
        assert stream.next() == b": still here\n"
        # An open stream would keep the server alive forever.
        server.stop()
        while stream.next():
            pass
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)
    assert not server._thread.is_alive()


@pytest.mark.parametrize("before", (True, False))
def test_a_server_that_fails_is_reported(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: PlaygroundServer) -> None:
        if before:
            self._ready.set()
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(PlaygroundServer, "_serve", fail)
    server = PlaygroundServer(Fake())
    with pytest.raises(WebnormError, match=r"the page's server failed: OSError: .* Too many open files"):
        server.__enter__().wait()
    server._socket.close()


def test_a_stream_ends_if_the_playground_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with PlaygroundServer(fake) as started:
        monkeypatch.setattr(fake, "wait", None)
        connection = HTTPConnection("127.0.0.1", started.port, timeout=HANG_S)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {started.token}"})
        # This returns only if the stream ends.
        connection.getresponse().read()
        connection.close()
